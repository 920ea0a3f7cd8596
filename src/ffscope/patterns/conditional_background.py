"""The text at large, given a surface form: prefixes that share it are about the same things anyway."""

from math import erfc, sqrt

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import SHALLOW, Form, mixed
from ffscope.patterns.prefixes import Prefixes

Subject = tuple[int, Form, int]  # what prefixes may be about: the number of its form, the form, and its code
_FEWEST = 20  # prefixes of the text at large that must have a form, to say what it brings with it
_MOST = 400
_LOOKED = 1000  # places of a word that are looked at
_SETS = 200
_SURE = 1e-6  # further than this from so many draws a chance is not told


class ConditionalBackground:
    """Prefixes of the sample by the surface forms that they end with."""

    def __init__(self, sample: Prefixes, vectors: Array, seed: int) -> None:
        self.sample, self.vectors, self.seed = sample, vectors, seed
        self.there = there = np.abs(vectors).sum(1) > 0
        folded = sample.sentences.lexicon.folded[sample.sentences.words]
        self._order = np.argsort(folded, kind="stable")
        self._sorted = folded[self._order]
        self._codes, self._rows = {}, {}
        for number, form in enumerate(SHALLOW):
            if form.words:
                continue
            owner, code = form.codes(sample)
            owner, code = owner[there[owner]], mixed(np.int64(number), code[there[owner]].view(np.int64))
            order = np.argsort(code, kind="stable")
            self._codes[form.name], self._rows[form.name] = code[order], owner[order]

    def share(self, rows: Array, subject: Subject) -> float:
        """How many of some prefixes of the sample have a subject; 1 where they are too few to say."""
        if len(rows) < _FEWEST:
            return 1.0
        number, form, code = subject
        _, found = form.codes(self.sample.take(rows))
        hits = int((mixed(np.int64(number), found.view(np.int64)) == np.uint64(code)).sum())
        return (hits + 0.5) / (len(rows) + 1)

    def rows(self, form: Form, code: int, besides: Array) -> Array:
        """Prefixes of the sample that have a form, and are of other sentences than these."""
        number = np.uint64(code)
        found = self._rows[form.name][slice(*np.searchsorted(self._codes[form.name], [number, number + np.uint64(1)]))]
        found = found[~np.isin(self.sample.row[found], besides)]
        if len(found) <= _MOST:
            return found
        return np.random.default_rng([self.seed, 5, code % 2**32]).choice(found, _MOST, replace=False)

    def containing(self, words: Array, besides: Array) -> Array:
        """Prefixes of the sample that contain some words one after the other, before their last, and are of other sentences."""
        sentences = self.sample.sentences
        folded = sentences.lexicon.folded[words]
        place = self._order[slice(*np.searchsorted(self._sorted, [folded[0], folded[0] + 1]))]
        for distance, word in enumerate(folded[1:], 1):
            next_to = np.minimum(place + distance, len(sentences.words) - 1)
            place = place[sentences.lexicon.folded[sentences.words[next_to]] == word]
        place = np.random.default_rng([self.seed, 9, int(folded[0])]).permutation(place)[:_LOOKED]
        row = np.searchsorted(sentences.starts, place, side="right") - 1
        place, row = place[~np.isin(row, besides)], row[~np.isin(row, besides)]
        row, first = np.unique(row, return_index=True)
        ends = place[first] + len(words) - sentences.starts[row]
        start, stop = (np.searchsorted(self.sample.row, row, side=side) for side in ("left", "right"))
        found = [
            prefix
            for low, high, end in zip(start, stop, ends, strict=True)
            for prefix in range(low, high)
            if self.sample.last[prefix] >= end and self.there[prefix]
        ]
        return np.array(found[:: len(found) // _MOST + 1], dtype=np.int64)

    def closer(self, rows: Array, vectors: Array) -> float:
        """The chance that as many of these prefixes of the sample are as close in meaning as others; 1 where they are too few."""
        count = len(vectors)
        if len(rows) < max(_FEWEST, 2 * count):
            return 1.0
        generator = np.random.default_rng([self.seed, 6, len(rows)])
        picked = generator.random((_SETS, len(rows))).argpartition(count, axis=1)[:, :count]
        drawn = _closeness(self.vectors[rows[picked]])
        score = (_closeness(vectors[None])[0] - drawn.mean()) / max(float(drawn.std()), 1e-9)
        return max(0.5 * erfc(score / sqrt(2)), _SURE)


def _closeness(vectors: Array) -> Array:
    """The sum over the pairs of each set of vectors of length 1."""
    total = vectors.sum(1)
    return ((total * total).sum(1) - (vectors * vectors).sum((1, 2))) / 2
