"""Topics of documents that came without: documents of one meaning, in a few coarse groups and in more fine ones."""

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.clustering import unit
from ffscope.patterns.prefixes import Prefixes

LEVELS = (8, 16, 32)  # how many groups
_LEARNT = 20_000  # documents from which they are learnt
_STEPS = 25
_DOCUMENTS = 4  # that a group must have on average, to be a topic and not a document


def topics_of(prefixes: Prefixes, vectors: Array, documents: int, *, seed: int) -> list[Array]:
    """The group of every document (-1 where nothing of it was read), once for each level that the number of documents allows."""
    number = prefixes.sentences.document[prefixes.row]
    total = np.zeros((documents, vectors.shape[1]), dtype=np.float64)
    np.add.at(total, number, vectors)
    read = np.flatnonzero(np.abs(total).sum(1) > 0)
    means = unit(total[read])
    made = []
    for groups in LEVELS:
        if len(read) >= _DOCUMENTS * groups:
            found = np.full(documents, -1)
            found[read] = _grouped(means, groups, np.random.default_rng([seed, 8, groups]))
            made.append(found)
    return made


def _grouped(vectors: Array, groups: int, generator: np.random.Generator) -> Array:
    """Spherical k-means, begun with documents that lie far apart."""
    learnt = vectors[np.sort(generator.permutation(len(vectors))[:_LEARNT])]
    centres = learnt[generator.integers(len(learnt), size=1)]
    for _ in range(groups - 1):
        far = np.maximum(1 - (learnt @ centres.T).max(1), 1e-9)
        centres = np.concatenate([centres, learnt[[generator.choice(len(learnt), p=far / far.sum())]]])
    for _ in range(_STEPS):
        nearest = (learnt @ centres.T).argmax(1)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, learnt)
        centres = np.where(np.abs(sums).sum(1, keepdims=True) > 0, unit(sums), centres)
    return (vectors @ centres.T).argmax(1)
