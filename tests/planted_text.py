"""The prefixes of a study's text and what each of them ends with, read without ffscope.patterns."""

import json
import re
from functools import cache

import numpy as np
import pyarrow.parquet as pq

from ffscope.corpus.documents import Corpus

_WORD = re.compile(r"\w+(?:['’]\w+)*")


def stem(word):
    """A word without its inflection, roughly: a description may list a base form."""
    for suffix, instead in (("ies", "y"), ("ing", ""), ("ed", ""), ("es", ""), ("s", "")):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word.removesuffix(suffix) + instead
            break
    return word.removesuffix("e")


class Text:
    """Every searched prefix, one entry per prefix in each array; arrays over all words of the text have one entry per word."""

    def __init__(self, study):
        rows = pq.read_table(study.path("sentences.parquet"), filters=[("held_out", "==", False)]).to_pylist()
        self.vocabulary = pq.read_table(study.path("vocabulary.parquet"))["text"].to_pylist()
        self.sentence = np.array([row["sentence"] for row in rows])
        self.length = np.array([len(row["ends"]) for row in rows])
        self.start = np.concatenate([[0], np.cumsum(self.length)[:-1]])  # of each sentence in the arrays of prefixes
        self.of = np.repeat(np.arange(len(rows)), self.length)  # the sentence's place in `sentence`
        self.position = np.arange(len(self.of)) - self.start[self.of]
        self.token = np.concatenate([row["tokens"][: len(row["ends"])] for row in rows])
        self.next_token = np.concatenate([[*row["tokens"][1:], row["next_token"]] for row in rows])
        self._read_words(rows)
        self._read_documents(study, rows)

    def _read_words(self, rows):
        words, gaps, first, word, whole, count = [], [], [], [], [], []
        for row in rows:
            text, offset, last = row["text"], len(words), -1
            spans = [match.span() for match in _WORD.finditer(text)]
            words += [text[begin:end] for begin, end in spans]
            gaps += [text[before:begin] for (_, before), (begin, _) in zip([(0, 0), *spans], spans, strict=False)]
            first += [offset] * len(spans)
            for end in row["ends"]:
                while last + 1 < len(spans) and spans[last + 1][0] < end:
                    last += 1
                inside = last >= 0 and end <= spans[last][1]
                word.append(offset + last if inside else -1)
                whole.append(inside and end == spans[last][1])
                count.append(last + 1)
        self.words, self.gap, self.first = words, np.array(gaps), np.array(first)
        self.word, self.whole, self.count = np.array(word), np.array(whole), np.array(count)  # count: words so far
        self.lower_words, self.lower = np.unique([text.lower() for text in words], return_inverse=True)
        self.number_of = {text: number for number, text in enumerate(self.lower_words.tolist())}
        self.index = np.arange(len(words)) - self.first  # of the word in its sentence
        inside = self.word >= 0
        self.pieces = np.where(inside, np.bincount(self.word[inside], minlength=len(words))[self.word], 0)
        new = np.concatenate([[True], self.word[1:] != self.word[:-1]])
        begins = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))
        self.piece = np.where(inside, np.arange(len(new)) - begins, -1)  # which token of the word the prefix ends with
        self.last = np.where(self.whole, self.lower[self.word], -1)
        adjacent = self.whole & (self.index[self.word] > 0) & (self.gap[self.word] == " ")
        self.before = np.where(adjacent, self.lower[self.word - 1], -1)

    def _read_documents(self, study, rows):
        columns = pq.read_table(study.path("documents.parquet")).to_pylist()
        described = json.loads(Corpus("vital-articles").files[0].read_text(encoding="utf-8")).values()
        descriptions = {row["title"]: (row["description"] or "").lower() for row in described}
        numbers = {row["document"]: number for number, row in enumerate(columns)}
        self.topics = np.array([row["topic"] or "" for row in columns])
        self.descriptions = [descriptions.get(row["title"], "") for row in columns]
        self.document = np.array([numbers[row["document"]] for row in rows])  # of each sentence
        words = np.array([len(_WORD.findall(row["text"])) for row in rows])
        self._stems, stem_of = np.unique([stem(word) for word in self.lower_words.tolist()], return_inverse=True)
        pairs = np.unique(np.stack([np.repeat(self.document, words), stem_of[self.lower]]), axis=1)
        self._document_of_pair, self._stem_of_pair = pairs
        self._searched = np.isin(np.arange(len(columns)), self.document)

    def with_words(self, flags):
        """The prefixes that end with a whole word of a kind; one flag per word of the text."""
        return self.whole & np.asarray(flags)[self.word]

    @cache  # noqa: B019 (one text lives as long as the process)
    def words_like(self, pattern):
        """The words of the text that match a regular expression: one flag per word."""
        shape = re.compile(pattern)
        return np.array([bool(shape.search(word)) for word in self.words])

    @cache  # noqa: B019
    def previous(self, pattern):
        """The words that follow, after a space, a word that matches."""
        return (self.index > 0) & (self.gap == " ") & np.roll(self.words_like(pattern), 1)

    def ending_with(self, word):
        return self.last == self.number_of.get(word, -2)

    def earlier(self, word, low=2, high=6):
        """The prefixes whose last word has another some words before it: one flag per prefix, and how far away it is."""
        wanted, here = self.number_of.get(word, -2), np.maximum(self.word, 0)
        distance = np.zeros(len(here), dtype=int)
        for away in range(high, low - 1, -1):
            there = here - away
            fits = self.whole & (there >= self.first[here])
            distance[fits & (self.lower[np.maximum(there, 0)] == wanted)] = away
        return distance > 0, distance

    def in_sentences(self, mask):
        """How many sentences have a prefix in a mask."""
        return len(np.unique(self.of[mask]))

    def about(self, documents):
        """The prefixes of some documents that have at least 8 words."""
        return documents[self.document][self.of] & (self.count >= 8)

    def naming(self, documents):
        """The stems of words that are in two of these documents, and in three times as large a share of them as of the others."""
        inside = documents[self._document_of_pair]
        counts = [np.bincount(self._stem_of_pair[flag], minlength=len(self._stems)) for flag in (inside, ~inside)]
        shares = [
            count / max((group & self._searched).sum(), 1)
            for count, group in zip(counts, (documents, ~documents), strict=True)
        ]
        return self._stems[(shares[0] >= 3 * shares[1]) & (counts[0] >= 2)].tolist()
