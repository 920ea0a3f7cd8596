"""How many n-grams cover the firings of a memory, and whether it detects them (Voita et al. 2023, section 4)."""

from typing import NamedTuple

import numpy as np

from ffscope.axes import Array, Bool, Int
from ffscope.memory_types.firing import Prefixes

_EPSILON = 1e-9  # a share of a count may be rounded to just above a whole number


class Ngrams(NamedTuple):
    """The n-grams that end a sample's prefixes. Numbers follow the order of their tokens."""

    numbers: Int[Array, "prefix"]  # -1 for a prefix with fewer than n tokens
    tokens: Int[Array, "ngram n"]
    counts: Int[Array, "ngram"]  # how many prefixes end with it


class Fires(NamedTuple):
    """The firings of some memories, in any order: the row of the memory, and the prefix."""

    memories: int
    rows: Int[Array, "firing"]
    prefixes: Int[Array, "firing"]

    @classmethod
    def of(cls, fired: Bool[Array, "memory prefix"]) -> "Fires":
        """Where `fired` is true."""
        rows, prefixes = np.divmod(np.flatnonzero(fired), fired.shape[1])
        return cls(len(fired), rows, prefixes)


class Limits(NamedTuple):
    """What makes a detector."""

    coverage: float  # share of the firings that its n-grams cover
    presence: float  # share of the occurrences of each of them on which it fires
    ngrams: int  # how many n-grams it has at most
    firings: int  # with fewer, nothing is said of a memory


class Covers(NamedTuple):
    """The smallest sets of n-grams that cover enough of the firings of memories."""

    needed: Int[Array, "memory"]  # size of the set; 0 for a memory that fires too rarely
    detects: Bool[Array, "memory"]  # whether the set is small, and the memory fires whenever one of its n-grams occurs
    numbers: Int[Array, "memory most"]  # the n-grams of the sets of detectors, most firings first; -1 elsewhere


def ngrams_of(prefixes: Prefixes, n: int) -> Ngrams:
    """The n-grams of the last n tokens."""
    tokens, unigrams = np.unique(prefixes.tokens, return_inverse=True)
    spelt, numbers = tokens[:, None], unigrams
    for length in range(2, n + 1):
        long_enough = prefixes.positions >= length - 1
        pairs = np.roll(numbers, 1)[long_enough] * len(tokens) + unigrams[long_enough]
        distinct, inverse = np.unique(pairs, return_inverse=True)
        spelt = np.concatenate([spelt[distinct // len(tokens)], tokens[distinct % len(tokens), None]], axis=1)
        numbers = np.full(len(unigrams), -1)
        numbers[long_enough] = inverse
    return Ngrams(numbers, spelt, np.bincount(numbers[numbers >= 0], minlength=len(spelt)))


def covers(fires: Fires, ngrams: Ngrams, limits: Limits) -> Covers:
    """The covers of some memories, from their firings. Among n-grams with equal firings, the one with the lower number is first."""
    if not len(ngrams.counts):  # no text is long enough
        nothing = np.zeros(fires.memories, dtype=np.int64)
        return Covers(nothing, nothing > 0, np.full((fires.memories, limits.ngrams), -1))
    table = _firings_by_ngram(fires, ngrams)
    firings = table.sum(1)
    target = np.ceil(limits.coverage * firings - _EPSILON).astype(np.int64)
    needed = np.where(firings >= limits.firings, _needed(table, target), 0)
    numbers = np.full((fires.memories, limits.ngrams), -1)
    few = np.flatnonzero((needed > 0) & (needed <= limits.ngrams))
    numbers[few] = _highest(table[few], needed[few], limits.ngrams)
    occurrences = np.where(numbers >= 0, ngrams.counts[numbers], 0)
    own = np.where(numbers >= 0, np.take_along_axis(table, np.maximum(numbers, 0), axis=1), 0)
    fires_whenever = (own >= limits.presence * occurrences - _EPSILON).all(1)
    detects = (numbers[:, 0] >= 0) & fires_whenever
    numbers[~detects] = -1
    return Covers(needed, detects, numbers)


def _firings_by_ngram(fires: Fires, ngrams: Ngrams) -> Int[Array, "memory ngram"]:
    """How often each memory fires on each n-gram."""
    count, numbers = len(ngrams.counts), ngrams.numbers[fires.prefixes]
    keys = (fires.rows * count + numbers)[numbers >= 0]
    return np.bincount(keys, minlength=fires.memories * count).reshape(fires.memories, count)


def _needed(table: Int[Array, "memory ngram"], target: Int[Array, "memory"]) -> Int[Array, "memory"]:
    """How many of the n-grams with the most firings have `target` firings together.

    Counted over n-grams with equal firings at once, since sorting the n-grams of every memory takes much longer.
    """
    at = np.flatnonzero(table)
    counts = table.ravel()[at]
    levels = np.arange(counts.max(initial=0), -1, -1)
    keys = at // table.shape[1] * len(levels) + (len(levels) - 1 - counts)  # from the highest count down
    sizes = np.bincount(keys, minlength=len(table) * len(levels)).reshape(len(table), len(levels))
    covered, number = np.cumsum(sizes * levels, axis=1), np.cumsum(sizes, axis=1)
    row, level = np.arange(len(table)), (covered >= target[:, None]).argmax(1)  # at which the target is reached
    before = covered[row, level] - (sizes * levels)[row, level]
    last = -(-(target - before) // np.maximum(levels[level], 1))
    return np.where(target > 0, number[row, level] - sizes[row, level] + last, 0)


def _highest(table: Int[Array, "some ngram"], needed: Int[Array, "some"], most: int) -> Int[Array, "some most"]:
    """The `needed` n-grams with the most firings of each memory, and -1 after them."""
    count = table.shape[1]
    keys = table * count + (count - 1 - np.arange(count))  # all different, so that ties are broken by number
    kept = min(most, count)
    keys = -np.sort(-np.partition(keys, count - kept, axis=1)[:, count - kept :], axis=1)
    numbers = np.full((len(table), most), -1)
    numbers[:, :kept] = count - 1 - keys % count
    return np.where(np.arange(most) < needed[:, None], numbers, -1)
