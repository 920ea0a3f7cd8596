"""The triggers of a study and the text at large, with what they mean, and what that makes likely."""

from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import Rates
from ffscope.patterns.clustering import Chance, unit
from ffscope.patterns.conditional_background import ConditionalBackground
from ffscope.patterns.prefix_embeddings import Projection, Reader, Vectors, learn, read_vectors
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.semantic import Sample
from ffscope.patterns.subjects import Words, read_documents
from ffscope.patterns.topics import topics_of
from ffscope.progress import Progress, ProgressCallback
from ffscope.study.folder import Study
from ffscope.study.resumable import ResumableFolder

_READ = 200_000  # prefixes of the sample whose meaning is read
_SAID = 2  # content words that a prefix must have, to mean something: shorter ones are alike for having said little
_SENTENCES = 4096  # whose vectors are put by at once


class Background:
    """The prefixes of triggers and of the sample, and what they mean."""

    def __init__(self, study: Study, prefixes: Prefixes, sample: Prefixes) -> None:
        self.study, self.seed = study, study.settings["seed"]
        self.prefixes, self.sample = prefixes, sample
        lot = np.random.default_rng([self.seed, 7]).permutation(len(sample))[:_READ]
        self.drawn = sample.take(np.sort(lot))
        key = prefixes.row.astype(np.int64) << 32 | prefixes.position
        _, first, self.number = np.unique(key, return_index=True, return_inverse=True)
        self.distinct = prefixes.take(first)

    def read(self, reader: Reader | None, asked: dict[str, Any], progress: ProgressCallback) -> None:
        """Read the meaning of all of them, some sentences at a time; what is read is put by, so that a stop loses little."""
        self.both = both = _both(self.distinct, self.drawn)
        self._folder = ResumableFolder(self.study, "patterns", [asked, len(both)])
        nothing = Vectors(*np.zeros((2, len(both), 1), dtype=np.float16))
        vectors = nothing if reader is None else self._kept(reader, both, progress)
        vectors.whole[both.content < _SAID] = 0
        count = len(self.distinct)
        whole, last = (_centred(some, both.length, count) for some in vectors)
        self.meaning = whole
        self.whole, self.last = whole[:count], last[:count]
        self.drawn_whole, self.drawn_last = whole[count:], last[count:]

    def _kept(self, reader: Reader, both: Prefixes, progress: ProgressCallback) -> Vectors:
        kept = learn(reader, both, seed=self.seed)
        whole, last = (np.zeros((len(both), kept.width), dtype=np.float16) for _ in range(2))
        order = np.argsort(both.row, kind="stable")
        rows, starts = np.unique(both.row[order], return_index=True)
        for first in range(0, len(rows), _SENTENCES):
            progress(Progress("patterns: meaning", first, len(rows)))
            end = starts[first + _SENTENCES] if first + _SENTENCES < len(rows) else len(order)
            chosen = np.sort(order[starts[first] : end])
            whole[chosen], last[chosen] = _piece(self._folder, f"{first:08}.npy", reader, kept, both.take(chosen))
        progress(Progress("patterns: meaning", len(rows), len(rows)))
        return Vectors(whole, last)

    def drop(self) -> None:
        """Remove what was put by, when the stage is noted as done."""
        self._folder.drop()

    def at_large(self) -> Sample:
        """What the text at large makes likely."""
        documents = read_documents(self.study)
        if self.drawn_whole.shape[1] > 1:
            groups = topics_of(self.both, self.meaning, len(documents.topic), seed=self.seed)
            documents = replace(documents, groups=groups)
        lemma = self.drawn.sentences.lexicon.lemma[self.drawn.word]
        with_whole, with_last = (np.abs(some).sum(1) > 0 for some in (self.drawn_whole, self.drawn_last))
        return Sample(
            rates=Rates(self.sample, documents.forms()),
            documents=documents,
            words=Words(self.sample),
            whole=Chance(self.drawn_whole[with_whole], self.seed),
            last=Chance(self.drawn_last[with_last], self.seed, lemma[with_last]),
            given=ConditionalBackground(self.drawn, self.drawn_whole, self.seed),
        )


def _piece(folder: ResumableFolder, file: str, reader: Reader, kept: Projection, prefixes: Prefixes) -> Vectors:
    """The vectors of some prefixes, read now or put by before."""
    with suppress(OSError, ValueError, EOFError):  # not there, or broken
        held = np.load(folder.path(file))
        if held.shape == (2, len(prefixes), kept.width):
            return Vectors(*held)
    vectors = read_vectors(reader, kept, prefixes)
    with folder.writing(file) as path, path.open("wb") as out:
        np.save(out, np.stack(vectors))
    return vectors


def _both(one: Prefixes, other: Prefixes) -> Prefixes:
    names = ("row", "position", "token", "last", "word", "part")
    return Prefixes(one.sentences, *(np.concatenate([getattr(one, name), getattr(other, name)]) for name in names))


def _centred(vectors: Array, length: Array, first: int) -> Array:
    """Vectors of length 1, without what prefixes of one length have in common; the sample begins at row `first`."""
    made = vectors.astype(np.float32)
    there = np.abs(made).sum(1) > 0
    bins = np.minimum(np.log2(np.maximum(length, 1)).astype(np.int64), 6)
    for number in np.unique(bins):
        here = there & (bins == number)
        drawn = here.copy()
        drawn[:first] = False
        if drawn.any():
            made[here] -= made[drawn].mean(0)
    return unit(made)
