"""Vectors of words, and of prefixes as the mean over their content words."""

from dataclasses import dataclass

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.clustering import unit_vectors
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.words import Lexicon

_WIDTH = 384  # the most dimensions of a vector
_GIANT = 4.0  # a dimension that varies more than this many times as much as the median is scaled down to it
_PREFIXES = 8192  # whose words are gathered at once


@dataclass(frozen=True)
class WordVectors:
    """A unit vector for every case-folded word, zero for words that have none."""

    vectors: Array  # words × dimensions
    counted: Array  # whether a word counts in a prefix: content words that have a vector
    senses: bool  # whether last words can be compared

    def of_prefixes(self, prefixes: Prefixes) -> Array:
        """The mean over the content words before the last of each prefix; zeros if there are none."""
        means = np.zeros((len(prefixes), self.vectors.shape[1]), dtype=np.float32)
        for start in range(0, len(prefixes), _PREFIXES):
            chosen = np.arange(start, min(start + _PREFIXES, len(prefixes)))
            owner, place = prefixes.take(chosen).words_before_last()
            words = prefixes.sentences.lexicon.folded[prefixes.sentences.words[place]]
            owner, words = owner[self.counted[words]], words[self.counted[words]]
            first = np.flatnonzero(np.diff(owner, prepend=-1))  # the first word of each prefix that has any
            if len(first):
                sums = np.add.reduceat(self.vectors[words], first)
                means[start + owner[first]] = sums / np.diff(first, append=len(words))[:, None]
        return means


def no_vectors(lexicon: Lexicon) -> WordVectors:
    """The vectors where nothing can compute them."""
    return WordVectors(np.zeros((len(lexicon.folds), 1), np.float32), np.zeros(len(lexicon.folds), bool), senses=False)


def comparable(vectors: Array) -> Array:
    """Centred unit vectors, after scaling down the giant dimensions that some models have."""
    if not len(vectors):
        return vectors
    spread = np.maximum(vectors.std(0), 1e-9)
    return unit_vectors((vectors - vectors.mean(0)) / np.maximum(spread / (_GIANT * np.median(spread)), 1.0))


def projected(lexicon: Lexicon, words: Array, originals: Array, *, senses: bool) -> WordVectors:
    """The vectors of some words, on their main directions."""
    if len(words) < 2:
        return no_vectors(lexicon)
    if originals.shape[1] > _WIDTH:
        _, directions = np.linalg.eigh((originals.T @ originals).astype(np.float64))
        originals = originals @ directions[:, -_WIDTH:].astype(np.float32)
    vectors = np.zeros((len(lexicon.folds), originals.shape[1]), dtype=np.float32)
    vectors[words] = unit_vectors(originals)
    counted = np.zeros(len(lexicon.folds), dtype=bool)
    counted[words] = lexicon.content_folds[words]
    return WordVectors(vectors, counted, senses)
