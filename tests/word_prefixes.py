"""Prefixes of made-up sentences, without a study."""

import numpy as np

from ffscope.patterns.prefixes import Prefixes, Sentences
from ffscope.patterns.words import Lexicon


def prefixes_from(texts, *, language="en", documents=None):
    """The longest prefix of every sentence, each given as a list of words; every word is a token."""
    lexicon = Lexicon()
    numbers = [[lexicon.number(word) for word in words] for words in texts]
    flat = np.array([number for words in numbers for number in words], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum([len(words) for words in texts])]).astype(np.int64)
    lexicon.analyse(language, np.bincount(flat, minlength=len(lexicon.numbers)))
    rows = np.arange(len(texts))
    documents = rows if documents is None else np.asarray(documents)
    sentences = Sentences(lexicon, rows, documents, flat, starts)
    last = np.array([max(len(words) - 1, 0) for words in texts])
    word = np.array([words[-1] if words else 0 for words in numbers])
    nothing = np.zeros(len(texts), dtype=np.int64)
    return Prefixes(sentences, rows, last, word, last, word, nothing.astype(bool), nothing)


def fold(prefixes, word):
    """The number of a case-folded word."""
    return prefixes.sentences.lexicon.folds.index(word)
