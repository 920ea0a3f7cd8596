"""Sentences one by one, as the splitter's columns have them."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from ffscope.corpus.sentences import Sentences, SentenceSplitter
from ffscope.corpus.tokenizing import TextTokenizer


class Sentence(NamedTuple):
    text: str
    tokens: list[int]
    ends: list[int]
    next_token: int
    cut: bool


def split(tokenizer, *texts, max_tokens=1000):
    """The sentences of each text, and the number of failures of each kind."""
    splitter = SentenceSplitter(TextTokenizer(tokenizer), language="en", max_tokens=max_tokens)
    sentences = splitter.split(list(texts))
    return rows(sentences, len(texts)), Counter(failure.what for failure in sentences.failures)


def rows(sentences: Sentences, paragraphs: int):
    """The sentences of each paragraph."""
    ends = np.cumsum(sentences.lengths)
    by_paragraph = [[] for _ in range(paragraphs)]
    for number, paragraph in enumerate(sentences.paragraphs.tolist()):
        tokens = slice(int(ends[number] - sentences.lengths[number]), int(ends[number]))
        by_paragraph[paragraph].append(
            Sentence(
                sentences.texts[number],
                sentences.tokens[tokens].tolist(),
                sentences.ends[tokens].tolist(),
                int(sentences.next_tokens[number]),
                bool(sentences.cut[number]),
            )
        )
    return by_paragraph
