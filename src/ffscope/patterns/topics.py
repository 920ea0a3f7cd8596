"""Topics for documents that have none: clusters of documents with similar meaning, coarse and fine."""

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.clustering import unit_vectors
from ffscope.patterns.prefixes import Sentences
from ffscope.patterns.word_vectors import WordVectors

LEVELS = (8, 16, 32)  # numbers of clusters
_FIT_DOCUMENTS = 20_000  # to which the clusters are fitted
_STEPS = 25
_DOCUMENTS = 4  # the least mean size of a cluster, so that it is a topic rather than a document


def cluster_documents(sentences: Sentences, vectors: WordVectors, documents: int, *, seed: int) -> list[Array]:
    """The cluster of every document (-1 if none of its words has a vector), for each level that the number of documents allows."""
    words = sentences.lexicon.folded[sentences.words]
    number = np.repeat(sentences.document, np.diff(sentences.starts))[vectors.counted[words]]
    counted = words[vectors.counted[words]]
    total = np.zeros((documents, vectors.vectors.shape[1]), dtype=np.float32)
    for start in range(0, len(counted), 2**16):
        np.add.at(total, number[start : start + 2**16], vectors.vectors[counted[start : start + 2**16]])
    embedded = np.flatnonzero(np.abs(total).sum(1) > 0)
    if len(embedded) < _DOCUMENTS * min(LEVELS):
        return []
    means = unit_vectors(total[embedded] - total[embedded].mean(0))
    levels = []
    for groups in LEVELS:
        if len(embedded) >= _DOCUMENTS * groups:
            labels = np.full(documents, -1)
            labels[embedded] = _k_means(means, groups, np.random.default_rng([seed, 8, groups]))
            levels.append(labels)
    return levels


def _k_means(vectors: Array, groups: int, generator: np.random.Generator) -> Array:
    """Spherical k-means, started from documents that are far apart."""
    fitted = vectors[np.sort(generator.permutation(len(vectors))[:_FIT_DOCUMENTS])]
    centres = fitted[generator.integers(len(fitted), size=1)]
    for _ in range(groups - 1):
        distance = np.maximum(1 - (fitted @ centres.T).max(1), 1e-9)
        centres = np.concatenate([centres, fitted[[generator.choice(len(fitted), p=distance / distance.sum())]]])
    for _ in range(_STEPS):
        nearest = (fitted @ centres.T).argmax(1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, fitted)
        centres = np.where(np.abs(sums).sum(1, keepdims=True) > 0, unit_vectors(sums), centres)
    return (vectors @ centres.T).argmax(1)
