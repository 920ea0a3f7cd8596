"""The prefixes of a study's triggers and of a sample of the corpus, with their vectors, and the statistics of that sample."""

from dataclasses import replace
from typing import Any

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import Rates
from ffscope.patterns.clustering import RandomSets, unit_vectors
from ffscope.patterns.conditional_background import ConditionalBackground
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.saved_arrays import SavedArrays
from ffscope.patterns.semantic import LEAST_WORDS, Sample
from ffscope.patterns.senses import Senses
from ffscope.patterns.subjects import SubjectWords, read_documents
from ffscope.patterns.topics import cluster_documents
from ffscope.patterns.word_vectors import WordVectors
from ffscope.study.folder import Study
from ffscope.study.resumable import ResumableFolder

_EMBEDDED = 150_000  # prefixes of the sample that have a vector
_BINS = 7  # of the lengths of prefixes: powers of two
_LEAST_CONTENT = 2  # content words that a prefix needs: those with fewer are similar only because they say little


class Background:
    """The prefixes of the triggers and of a sample of the corpus, with their embeddings."""

    def __init__(self, study: Study, prefixes: Prefixes, sample: Prefixes) -> None:
        self.study, self.seed = study, study.settings["seed"]
        self.prefixes, self.sample = prefixes, sample
        rows = np.random.default_rng([self.seed, 7]).permutation(len(sample))[:_EMBEDDED]
        self.embedded_sample = sample.take(np.sort(rows))

    def saved(self, options: dict[str, Any]) -> SavedArrays:
        """Where arrays that take long to compute are saved, so that an interrupted run resumes."""
        self._folder = ResumableFolder(self.study, "patterns", [options, len(self.prefixes.sentences.lexicon.folds)])
        return SavedArrays(self._folder)

    def embed(self, vectors: WordVectors) -> None:
        """Compute the vectors of the sample's prefixes from those of their words."""
        self.vectors = vectors
        uncentred = self._uncentred(self.embedded_sample)
        bins, nonzero = _length_bins(self.embedded_sample), np.abs(uncentred).sum(1) > 0
        self._centres = np.zeros((_BINS, uncentred.shape[1]), dtype=np.float32)
        for number in np.unique(bins[nonzero]):
            self._centres[number] = uncentred[nonzero & (bins == number)].mean(0)
        self.sample_whole = self._centred(self.embedded_sample, uncentred)

    def of(self, prefixes: Prefixes) -> Array:
        """Unit vectors of prefixes, centred on the sample's mean for prefixes of similar length; zeros if they say little."""
        key = prefixes.row.astype(np.int64) << 32 | prefixes.position
        _, first, of_row = np.unique(key, return_index=True, return_inverse=True)  # many memories share triggers
        distinct = prefixes.take(first)
        return self._centred(distinct, self._uncentred(distinct))[of_row]

    def _uncentred(self, prefixes: Prefixes) -> Array:
        whole = self.vectors.of_prefixes(prefixes)
        whole[(prefixes.content < _LEAST_CONTENT) | (prefixes.length < LEAST_WORDS)] = 0
        return whole

    def _centred(self, prefixes: Prefixes, uncentred: Array) -> Array:
        nonzero = np.abs(uncentred).sum(1, keepdims=True) > 0
        return unit_vectors((uncentred - self._centres[_length_bins(prefixes)]) * nonzero)

    def drop(self) -> None:
        """Remove what was saved, once the stage is recorded as done."""
        self._folder.drop()

    def sample_statistics(self) -> Sample:
        """How common forms, subjects and similar meanings are in the corpus."""
        documents = read_documents(self.study)
        if self.sample_whole.shape[1] > 1:
            groups = cluster_documents(self.sample.sentences, self.vectors, len(documents.topic), seed=self.seed)
            documents = replace(documents, groups=groups)
        with_whole = np.flatnonzero(np.abs(self.sample_whole).sum(1) > 0)
        return Sample(
            rates=Rates(self.sample, documents.forms()),
            documents=documents,
            words=SubjectWords(self.sample, self.vectors),
            whole=RandomSets(self.sample_whole, self.seed, with_whole),
            conditional=ConditionalBackground(self.embedded_sample, self.sample_whole, self.seed),
        )

    def senses(self) -> Senses:
        """The senses of the sample's last words."""
        return Senses(self.embedded_sample, self.vectors, self.seed)


def _length_bins(prefixes: Prefixes) -> Array:
    return np.minimum(np.log2(np.maximum(prefixes.length, 1)).astype(np.int64), _BINS - 1)
