"""Groups of prefixes that are close in meaning, compared with random sets of the same size."""

from dataclasses import dataclass, field

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.pattern import LEAST

_SMALLEST = 1e-6  # no smaller p-value is extrapolated from 2,000 draws
_JOINING = 0.98  # the share of random prefixes that are further from a random group than a prefix that joins one
_NEAREST = 0.9  # the share of random prefixes that are further from the group itself
_OTHERS = 1000  # random prefixes that are compared with a group


def unit_vectors(vectors: Array) -> Array:
    """Vectors scaled to length 1; zero vectors stay zero."""
    vectors = vectors.astype(np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-9)


@dataclass(frozen=True)
class Clusters:
    """For each set: the closeness of the whole set, that of its closest group, and the prefixes of that group (bits)."""

    whole: Array
    best: Array
    bits: Array


def cluster(similarity: Array, active: Array) -> Clusters:
    """Average-linkage clustering of each set; the closest of all groups that are formed is the best.

    `similarity` is sets × n × n, `active` (sets × n) marks the prefixes that count. The closeness of a group is the sum of the
    similarities of its pairs divided by the square root of their number, which by chance is about the same for all sizes.
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
    diagonal = np.where(np.eye(n, dtype=bool), -np.inf, 0.0).astype(np.float32)
    for _ in range(n - 1):
        pairs = size[:, :, None] * size[:, None, :]
        mean = np.where(pairs > 0, between / np.maximum(pairs, 1), -np.inf) + diagonal
        flat = mean.reshape(sets, -1).argmax(1)
        kept, merged = np.minimum(flat // n, flat % n), np.maximum(flat // n, flat % n)
        live = np.isfinite(mean.reshape(sets, -1)[every, flat])
        if not live.any():
            break
        rows, kept, merged = every[live], kept[live], merged[live]
        inside[rows, kept] += inside[rows, merged] + between[rows, kept, merged]
        between[rows, kept] += between[rows, merged]
        between[rows, :, kept] += between[rows, :, merged]
        between[rows, kept, kept] = 0.0
        size[rows, kept] += size[rows, merged]
        members[rows, kept] |= members[rows, merged]
        size[rows, merged] = 0.0
        closeness = _closeness(inside[rows, kept], size[rows, kept])
        better = closeness > best[rows]
        best[rows[better]], bits[rows[better]] = closeness[better], members[rows, kept][better]
    return Clusters(whole, best, bits)


def _closeness(total: Array, size: Array) -> Array:
    """The closeness of groups; -inf for those that are too small for a pattern."""
    return np.where(size >= LEAST, total / np.sqrt(np.maximum(size * (size - 1) / 2, 1)), -np.inf)


@dataclass
class RandomSets:
    """How close random prefixes of the corpus are, or random words of it, for sets of any size; drawn once per size."""

    vectors: Array  # unit vectors
    seed: int
    pool: Array  # the rows of `vectors` to draw from; a word occurs as often as it ends a prefix
    lemma: Array | None = None  # of every row of `vectors`: no set contains two words with one lemma
    sets: int = 2000
    _whole: dict[int, Array] = field(default_factory=dict)
    _best: dict[int, Array] = field(default_factory=dict)
    _joining: dict[int, float] = field(default_factory=dict)
    _others: Array | None = None

    def _draw(self, n: int) -> Array:
        generator = np.random.default_rng([self.seed, 4, n])
        if self.lemma is None:
            return self.pool[generator.integers(len(self.pool), size=(self.sets, n))]
        rows = self.pool[generator.integers(len(self.pool), size=(self.sets, 4 * n))]
        return np.stack([_different(row, self.lemma[row], n) for row in rows])

    def similarity(self, rows: Array) -> Array:
        """The similarities within sets, given by their rows."""
        chosen = self.vectors[rows]
        return chosen @ chosen.transpose(0, 2, 1)

    def _draw_once(self, n: int) -> None:
        if n not in self._whole:
            clusters = cluster(self.similarity(self._draw(n)), np.ones((self.sets, n), dtype=bool))
            self._whole[n], self._best[n] = np.sort(clusters.whole), np.sort(clusters.best)

    def p_values(self, clusters: Clusters, counts: Array) -> tuple[Array, Array]:
        """P-values of the closeness of each whole set and of its closest group, against random sets of the same size."""
        whole, best = np.ones(len(counts)), np.ones(len(counts))
        for n in np.unique(counts[counts >= LEAST]):
            self._draw_once(int(n))
            same_size = counts == n
            whole[same_size] = _upper_tail(self._whole[int(n)], clusters.whole[same_size])
            best[same_size] = _upper_tail(self._best[int(n)], clusters.best[same_size])
        return whole, best

    def typical_bound(self, size: int) -> float:
        """The closeness that one in twenty random sets of this size reaches."""
        self._draw_once(size)
        return float(self._whole[size][int(0.95 * self.sets)])

    def joining_bound(self, group: Array) -> float:
        """The least mean similarity to a group at which a vector joins it.

        It is closer to the group than nearly all random vectors to random groups, and than most random vectors to this one.
        """
        if self._others is None:
            generator = np.random.default_rng([self.seed, 11])
            self._others = self.vectors[generator.choice(self.pool, min(_OTHERS, len(self.pool)), replace=False)]
        return max(self._random_joining_bound(len(group)), float(np.quantile(self._others @ group.mean(0), _NEAREST)))

    def _random_joining_bound(self, size: int) -> float:
        """The mean similarity to a random group of this size that few random vectors have."""
        if size not in self._joining:
            vectors = self.vectors[self._draw(size + 1)]
            mean = np.einsum("sd,snd->sn", vectors[:, 0], vectors[:, 1:]).mean(1)
            self._joining[size] = float(np.quantile(mean, _JOINING))
        return self._joining[size]


def _different(row: Array, lemma: Array, count: int) -> Array:
    """The first few words of a draw with different lemmas; repeated if there are too few."""
    first = np.sort(np.unique(lemma, return_index=True)[1])
    return row[np.resize(first, count)]


def _upper_tail(drawn: Array, values: Array) -> Array:
    """P-values of values against sorted draws; beyond the draws, an exponential fitted to their highest tenth."""
    share = (len(drawn) - np.searchsorted(drawn, values) + 1) / (len(drawn) + 1)
    start = drawn[int(0.9 * len(drawn))]
    scale = max(float(np.mean(drawn[drawn >= start] - start)), 1e-9)
    beyond = np.maximum(0.1 * np.exp(-np.maximum(values - start, 0) / scale), _SMALLEST)
    return np.where(values > drawn[int(0.99 * len(drawn))], np.minimum(beyond, share + 0.01), share)
