"""Prefixes that are close in meaning, held against random sets of as many."""

from dataclasses import dataclass, field

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.pattern import LEAST

_SETS = 2000  # random sets that stand for chance
_SURE = 1e-6  # further than this from 2,000 draws a chance is not told
_JOINING = 0.95  # of random prefixes are further from a group than one that joins it


def unit(vectors: Array) -> Array:
    """Vectors of length 1, or 0 where there is none."""
    vectors = vectors.astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)


@dataclass(frozen=True)
class Linked:
    """Of each set: how close all of it is, how close its closest group, and which prefixes that is (bits)."""

    whole: Array
    best: Array
    bits: Array


def link(similarity: Array, active: Array) -> Linked:
    """Join the closest prefixes of each set, then the closest groups, and so on; the closest group on the way is the best.

    `similarity` is sets × n × n, `active` (sets × n) says which prefixes count. How close a group is: the sum over its pairs over
    the square root of their number, which by chance is about as large for a small group as for a large one.
    """
    sets, n = active.shape
    every = np.arange(sets)
    between = np.where(active[:, :, None] & active[:, None, :], similarity, 0.0).astype(np.float32)
    between[:, np.arange(n), np.arange(n)] = 0.0
    whole = _closeness(between.sum((1, 2)) / 2, active.sum(1))
    size = active.astype(np.float32)
    inside = np.zeros((sets, n), dtype=np.float32)
    members = np.where(active, np.left_shift(np.uint64(1), np.arange(n, dtype=np.uint64)), np.uint64(0))
    best, bits = np.full(sets, -np.inf, dtype=np.float32), np.zeros(sets, dtype=np.uint64)
    off = np.where(np.eye(n, dtype=bool), -np.inf, 0.0).astype(np.float32)
    for _ in range(n - 1):
        pairs = size[:, :, None] * size[:, None, :]
        mean = np.where(pairs > 0, between / np.maximum(pairs, 1), -np.inf) + off
        flat = mean.reshape(sets, -1).argmax(1)
        one, other = np.minimum(flat // n, flat % n), np.maximum(flat // n, flat % n)
        live = np.isfinite(mean.reshape(sets, -1)[every, flat])
        if not live.any():
            break
        here, one, other = every[live], one[live], other[live]
        inside[here, one] += inside[here, other] + between[here, one, other]
        between[here, one] += between[here, other]
        between[here, :, one] += between[here, :, other]
        between[here, one, one] = 0.0
        size[here, one] += size[here, other]
        members[here, one] |= members[here, other]
        size[here, other] = 0.0
        close = _closeness(inside[here, one], size[here, one])
        better = close > best[here]
        best[here[better]], bits[here[better]] = close[better], members[here, one][better]
    return Linked(whole, best, bits)


def _closeness(total: Array, size: Array) -> Array:
    """Of groups that are large enough to be one."""
    return np.where(size >= LEAST, total / np.sqrt(np.maximum(size * (size - 1) / 2, 1)), -np.inf)


@dataclass
class Chance:
    """How close random prefixes are: drawn once from the text at large, asked for any size of set."""

    vectors: Array  # of the sample, of length 1
    seed: int
    lemma: Array | None = None  # of the last word: one word twice says nothing of its sense
    _whole: dict[int, Array] = field(default_factory=dict)
    _best: dict[int, Array] = field(default_factory=dict)
    _joining: dict[int, float] = field(default_factory=dict)

    def _draw(self, n: int) -> Array:
        generator = np.random.default_rng([self.seed, 4, n])
        return generator.integers(len(self.vectors), size=(_SETS, n))

    def similarity(self, rows: Array) -> Array:
        """Of the prefixes of random sets."""
        chosen = self.vectors[rows]
        found = chosen @ chosen.transpose(0, 2, 1)
        return found if self.lemma is None else without_repeats(found, self.lemma[rows])

    def _drawn(self, n: int) -> None:
        if n not in self._whole:
            linked = link(self.similarity(self._draw(n)), np.ones((_SETS, n), dtype=bool))
            self._whole[n], self._best[n] = np.sort(linked.whole), np.sort(linked.best)

    def of(self, linked: Linked, counts: Array) -> tuple[Array, Array]:
        """The chance that a random set of as many is as close: all of it, and its closest group."""
        whole, best = np.ones(len(counts)), np.ones(len(counts))
        for n in np.unique(counts[counts >= LEAST]):
            self._drawn(int(n))
            here = counts == n
            whole[here] = _above(self._whole[int(n)], linked.whole[here])
            best[here] = _above(self._best[int(n)], linked.best[here])
        return whole, best

    def unlike(self, size: int) -> float:
        """How close a set of so many is that one in twenty random ones is."""
        self._drawn(size)
        return float(self._whole[size][int(0.95 * _SETS)])

    def joining(self, size: int) -> float:
        """How close on average to a group of so many a prefix must be to be one of it."""
        if size not in self._joining:
            rows = self._draw(size + 1)
            vectors = self.vectors[rows]
            mean = np.einsum("sd,snd->sn", vectors[:, 0], vectors[:, 1:]).mean(1)
            self._joining[size] = float(np.quantile(mean, _JOINING))
        return self._joining[size]


def without_repeats(similarity: Array, lemma: Array) -> Array:
    """Similarities that count only between different words."""
    return np.where(lemma[:, :, None] == lemma[:, None, :], np.float32(0), similarity)


def _above(drawn: Array, values: Array) -> Array:
    """The chance of values as high as these, given sorted draws; beyond them it falls as the highest tenth of them does."""
    share = (len(drawn) - np.searchsorted(drawn, values) + 1) / (len(drawn) + 1)
    start = drawn[int(0.9 * len(drawn))]
    scale = max(float(np.mean(drawn[drawn >= start] - start)), 1e-9)
    beyond = np.maximum(0.1 * np.exp(-np.maximum(values - start, 0) / scale), _SURE)
    return np.where(values > drawn[int(0.99 * len(drawn))], np.minimum(beyond, share + 0.01), share)
