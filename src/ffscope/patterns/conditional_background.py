"""The sample conditioned on a surface form, since prefixes that share a form tend to share subjects too."""

from math import erfc, sqrt

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.forms import SHALLOW, Form, hashed
from ffscope.patterns.prefixes import Prefixes

Subject = tuple[int, Form, int]  # the index of its form, the form, and its code
_FEWEST = 20  # prefixes of the sample that must have a form for an estimate
_MOST = 400
_OCCURRENCES = 1000  # of a word that are examined
_SETS = 200
_SMALLEST = 1e-6  # no smaller p-value is estimated from these draws


class ConditionalBackground:
    """Prefixes of the sample, looked up by their surface forms."""

    def __init__(self, sample: Prefixes, vectors: Array, seed: int) -> None:
        self.sample, self.vectors, self.seed = sample, vectors, seed
        self.nonzero = np.abs(vectors).sum(1) > 0
        folded = sample.sentences.lexicon.folded[sample.sentences.words]
        self._order = np.argsort(folded, kind="stable")
        self._sorted = folded[self._order]
        self._codes, self._rows = {}, {}
        for number, form in enumerate(SHALLOW):
            if form.words:
                continue
            owner, code = form.codes(sample)
            code = hashed(np.int64(number), code.view(np.int64))
            order = np.argsort(code, kind="stable")
            self._codes[form.name], self._rows[form.name] = code[order], owner[order]

    def share(self, rows: Array, subject: Subject, otherwise: float = 1.0) -> float:
        """The share of some prefixes of the sample that have a subject; `otherwise` if there are too few of them."""
        if len(rows) < _FEWEST:
            return otherwise
        number, form, code = subject
        owner, codes = form.codes(self.sample.take(rows))
        hits = len(np.unique(owner[hashed(np.int64(number), codes.view(np.int64)) == np.uint64(code)]))
        return (hits + 0.5) / (len(rows) + 1)

    @property
    def sentences(self) -> int:
        """The number of sentences in the sample."""
        return len(np.unique(self.sample.row))

    def sentences_with(self, form: Form, code: int) -> int | None:
        """The number of sentences of the sample with a prefix that has a form; None for forms that may occur anywhere."""
        return None if form.words else len(np.unique(self.sample.row[self._with(form, code)]))

    def _with(self, form: Form, code: int) -> Array:
        number = np.uint64(code)
        return self._rows[form.name][slice(*np.searchsorted(self._codes[form.name], [number, number + np.uint64(1)]))]

    def rows(self, form: Form, code: int, excluded: Array) -> Array:
        """Prefixes of the sample that have a form, from sentences other than `excluded`."""
        rows = self._with(form, code)
        rows = rows[~np.isin(self.sample.row[rows], excluded)]
        if len(rows) <= _MOST:
            return rows
        return np.random.default_rng([self.seed, 5, code % 2**32]).choice(rows, _MOST, replace=False)

    def containing(self, words: Array, excluded: Array) -> Array:
        """Prefixes of the sample that contain consecutive words before the last one, from sentences other than `excluded`."""
        sentences = self.sample.sentences
        folded = sentences.lexicon.folded[words]
        place = self._order[slice(*np.searchsorted(self._sorted, [folded[0], folded[0] + 1]))]
        for distance, word in enumerate(folded[1:], 1):
            next_to = np.minimum(place + distance, len(sentences.words) - 1)
            place = place[sentences.lexicon.folded[sentences.words[next_to]] == word]
        place = np.random.default_rng([self.seed, 9, int(folded[0])]).permutation(place)[:_OCCURRENCES]
        row = np.searchsorted(sentences.starts, place, side="right") - 1
        place, row = place[~np.isin(row, excluded)], row[~np.isin(row, excluded)]
        row, first = np.unique(row, return_index=True)
        ends = place[first] + len(words) - sentences.starts[row]
        start, stop = (np.searchsorted(self.sample.row, row, side=side) for side in ("left", "right"))
        prefixes = [
            prefix
            for low, high, end in zip(start, stop, ends, strict=True)
            for prefix in range(low, high)
            if self.sample.last[prefix] >= end and self.nonzero[prefix]
        ]
        return np.array(prefixes[:: len(prefixes) // _MOST + 1], dtype=np.int64)

    def closeness_p_value(self, rows: Array, vectors: Array) -> float:
        """The p-value of how close `vectors` are, against random sets of these prefixes of the sample; 1 if there are too few."""
        rows, count = rows[self.nonzero[rows]], len(vectors)
        if len(rows) < max(_FEWEST, 2 * count):
            return 1.0
        generator = np.random.default_rng([self.seed, 6, len(rows)])
        picked = generator.random((_SETS, len(rows))).argpartition(count, axis=1)[:, :count]
        drawn = _closeness(self.vectors[rows[picked]])
        score = (_closeness(vectors[None])[0] - drawn.mean()) / max(float(drawn.std()), 1e-9)
        return max(0.5 * erfc(score / sqrt(2)), _SMALLEST)


def _closeness(vectors: Array) -> Array:
    """The sum of the similarities of all pairs, for each set of unit vectors."""
    total = vectors.sum(1)
    return ((total * total).sum(1) - (vectors * vectors).sum((1, 2))) / 2
