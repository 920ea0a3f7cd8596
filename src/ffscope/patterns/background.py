"""Embeddings of a study's triggers and of a sample of the corpus, and the statistics of that sample."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import Rates
from ffscope.patterns.clustering import RandomSets, unit_vectors
from ffscope.patterns.conditional_background import ConditionalBackground
from ffscope.patterns.prefix_embeddings import Projection, Reader, Vectors, embed, fit_projection
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.semantic import Sample
from ffscope.patterns.subjects import ContentWords, read_documents
from ffscope.patterns.topics import cluster_documents
from ffscope.progress import Progress, ProgressCallback
from ffscope.study.folder import Study
from ffscope.study.resumable import ResumableFolder

_EMBEDDED = 200_000  # prefixes of the sample that are embedded
_LEAST_CONTENT = 2  # content words that a prefix needs: those with fewer are similar only because they say little
_SENTENCES = 4096  # sentences whose vectors are saved in one file


class Background:
    """The prefixes of the triggers and of a sample of the corpus, with their embeddings."""

    def __init__(self, study: Study, prefixes: Prefixes, sample: Prefixes) -> None:
        self.study, self.seed = study, study.settings["seed"]
        self.prefixes, self.sample = prefixes, sample
        rows = np.random.default_rng([self.seed, 7]).permutation(len(sample))[:_EMBEDDED]
        self.embedded_sample = sample.take(np.sort(rows))
        key = prefixes.row.astype(np.int64) << 32 | prefixes.position
        _, first, self.distinct_index = np.unique(key, return_index=True, return_inverse=True)
        self.distinct = prefixes.take(first)

    def read(self, reader: Reader | None, options: dict[str, Any], progress: ProgressCallback) -> None:
        """Embed all of them, some sentences at a time. Each piece is saved, so that an interrupted run resumes."""
        self.both = both = _concatenated(self.distinct, self.embedded_sample)
        self._folder = ResumableFolder(self.study, "patterns", [options, len(both)])
        empty = Vectors(*np.zeros((2, len(both), 1), dtype=np.float16))
        vectors = empty if reader is None else self._embed(reader, both, progress)
        vectors.whole[both.content < _LEAST_CONTENT] = 0
        count = len(self.distinct)
        whole, last = (_centred(array, both.length, count) for array in vectors)
        self.embeddings = whole
        self.whole, self.last = whole[:count], last[:count]
        self.sample_whole, self.sample_last = whole[count:], last[count:]

    def _embed(self, reader: Reader, both: Prefixes, progress: ProgressCallback) -> Vectors:
        projection = fit_projection(reader, both, seed=self.seed)
        whole, last = (np.zeros((len(both), projection.width), dtype=np.float16) for _ in range(2))
        order = np.argsort(both.row, kind="stable")
        rows, starts = np.unique(both.row[order], return_index=True)
        for first in range(0, len(rows), _SENTENCES):
            progress(Progress("patterns: meaning", first, len(rows)))
            end = starts[first + _SENTENCES] if first + _SENTENCES < len(rows) else len(order)
            chosen = np.sort(order[starts[first] : end])
            whole[chosen], last[chosen] = _piece(self._folder, f"{first:08}.npy", reader, projection, both.take(chosen))
        progress(Progress("patterns: meaning", len(rows), len(rows)))
        return Vectors(whole, last)

    def drop(self) -> None:
        """Remove the saved pieces, once the stage is recorded as done."""
        self._folder.drop()

    def sample_statistics(self) -> Sample:
        """How common forms, subjects and similar meanings are in the corpus."""
        documents = read_documents(self.study)
        if self.sample_whole.shape[1] > 1:
            groups = cluster_documents(self.both, self.embeddings, len(documents.topic), seed=self.seed)
            documents = replace(documents, groups=groups)
        lemma = self.embedded_sample.sentences.lexicon.lemma[self.embedded_sample.word]
        with_whole, with_last = (np.abs(array).sum(1) > 0 for array in (self.sample_whole, self.sample_last))
        return Sample(
            rates=Rates(self.sample, documents.forms()),
            documents=documents,
            words=ContentWords(self.sample),
            whole=RandomSets(self.sample_whole[with_whole], self.seed),
            last=RandomSets(self.sample_last[with_last], self.seed, lemma[with_last]),
            conditional=ConditionalBackground(self.embedded_sample, self.sample_whole, self.seed),
        )


def _piece(folder: ResumableFolder, file: str, reader: Reader, projection: Projection, prefixes: Prefixes) -> Vectors:
    """The vectors of some prefixes, loaded if they were saved before, else computed and saved."""
    with suppress(OSError, ValueError, EOFError):  # missing or damaged
        saved = np.load(folder.path(file))
        if saved.shape == (2, len(prefixes), projection.width):
            return Vectors(*saved)
    vectors = embed(reader, projection, prefixes)
    with folder.writing(file) as path, path.open("wb") as out:
        np.save(out, np.stack(vectors))
    return vectors


def _concatenated(first: Prefixes, second: Prefixes) -> Prefixes:
    names = ("row", "position", "token", "last", "word", "part")
    return Prefixes(first.sentences, *(np.concatenate([getattr(first, name), getattr(second, name)]) for name in names))


def _centred(vectors: Array, length: Array, first: int) -> Array:
    """Unit vectors, centred on the sample's mean for prefixes of similar length; the sample starts at row `first`."""
    centred = vectors.astype(np.float32)
    nonzero = np.abs(centred).sum(1) > 0
    bins = np.minimum(np.log2(np.maximum(length, 1)).astype(np.int64), 6)
    for number in np.unique(bins):
        same_length = nonzero & (bins == number)
        sampled = same_length.copy()
        sampled[:first] = False
        if sampled.any():
            centred[same_length] -= centred[sampled].mean(0)
    return unit_vectors(centred)
