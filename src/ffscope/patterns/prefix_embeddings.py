"""Embeddings of prefixes: the mean over their words of the vectors of an encoder, or of the studied model's middle layer.

An encoder reads each sentence once, and a prefix is the mean over the sentence's first vectors. The encoder is bidirectional, so
these vectors also contain a little of what follows; the sample that triggers are compared with is embedded in the same way. The
studied model's own states at a trigger are the input of its key, and would be similar in any model, even a random one. So only
word vectors are taken from it, each the mean over occurrences of the word in the corpus, and the last word of a prefix is
excluded.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.corpus.prefixes import tokens_of
from ffscope.models.encoder import Encoder
from ffscope.models.memory_model import MemoryModel
from ffscope.patterns.prefixes import Prefixes
from ffscope.search.passes import bos_of, by_length, sentence_inputs
from ffscope.study.folder import Study

_TOKENS = 4096  # per batch
_WIDTH = 64  # dimensions of a projected vector
_GIANT = 4.0  # a dimension that varies more than this many times as much as the median is scaled down to it
_FIT_SENTENCES = 1000  # to which the projection is fitted
_WORD_SENTENCES = 4000  # from which the studied model's word vectors are computed
_SENTENCES = 64  # per batch, where word vectors are looked up
_FREQUENT = 20  # the most frequent words: a third of a text, and they say little about it


class SentenceStates(NamedTuple):
    """A batch of sentences: the vector of each piece, and the index of its word in the sentence, which ascends; -1 for padding."""

    rows: Array
    states: Tensor  # batch × pos × hidden
    places: Array  # batch × pos


class Reader(ABC):
    """Computes the vectors of sentences, selected by their rows, and the index of the last word of each prefix to include."""

    senses = True  # whether the sense of the last word can be compared

    @abstractmethod
    def read(self, rows: Array) -> Iterator[SentenceStates]: ...

    @abstractmethod
    def ends(self, prefixes: Prefixes) -> Array: ...


class EncoderReader(Reader):
    """An encoder over the words of sentences, without punctuation and the most frequent words."""

    def __init__(self, encoder: Encoder, prefixes: Prefixes) -> None:
        self.encoder, self.sentences = encoder, prefixes.sentences
        lexicon = self.sentences.lexicon
        counts = np.bincount(lexicon.folded[self.sentences.words], minlength=len(lexicon.folds))
        frequent = np.isin(lexicon.folded, np.argsort(-counts, kind="stable")[:_FREQUENT])
        letters = np.array([any(map(str.isalnum, word)) for word in lexicon.spelt])
        self.included = letters & ~frequent if len(lexicon.folds) > 10 * _FREQUENT else letters

    def ends(self, prefixes: Prefixes) -> Array:
        return prefixes.last - prefixes.part  # an incomplete word is excluded

    def read(self, rows: Array) -> Iterator[SentenceStates]:
        for start in range(0, len(rows), 4096):  # sentences at a time, which bounds the memory for their pieces
            batch_rows = rows[start : start + 4096]
            words_and_places = [self._included_words(int(row)) for row in batch_rows]
            pieces = self.encoder.pieces([words for words, _ in words_and_places])
            lengths = np.array([len(ids) for ids, _ in pieces])
            order = np.argsort(lengths, kind="stable")
            size = max(1, _TOKENS // max(int(lengths.max(initial=1)), 1))
            for first in range(0, len(order), size):
                chosen = order[first : first + size]
                yield self._batch(
                    batch_rows[chosen], [pieces[i] for i in chosen], [words_and_places[i][1] for i in chosen]
                )

    def _included_words(self, row: int) -> tuple[list[str], Array]:
        words = self.sentences.words[self.sentences.starts[row] : self.sentences.starts[row + 1]]
        places = np.flatnonzero(self.included[words])
        return [self.sentences.lexicon.spelt[word] for word in words[places]], places

    def _batch(self, rows: Array, pieces: list[tuple[list[int], list[int]]], places: list[Array]) -> SentenceStates:
        longest = max(1, *(len(ids) for ids, _ in pieces))
        ids, mask = np.zeros((2, len(pieces), longest), dtype=np.int64)
        where = np.full((len(pieces), longest), -1)
        for row, (numbers, words) in enumerate(pieces):
            ids[row, : len(numbers)], mask[row, : len(numbers)] = numbers, 1
            of_word = np.array(words, dtype=np.int64)
            where[row, : len(numbers)][of_word >= 0] = places[row][of_word[of_word >= 0]]
        return SentenceStates(rows, self.encoder.states(torch.from_numpy(ids), torch.from_numpy(mask)), where)


class ModelReader(Reader):
    """Word vectors from the studied model's middle layer: each content word is the mean over some of its occurrences."""

    senses = False

    def __init__(self, model: MemoryModel, study: Study, sample: Prefixes, *, seed: int) -> None:
        self.sentences = sample.sentences
        lexicon = self.sentences.lexicon
        rows = np.unique(sample.row)
        chosen = np.sort(np.random.default_rng([seed, 10]).permutation(rows)[:_WORD_SENTENCES])
        ends = sample.take(np.flatnonzero(np.isin(sample.row, chosen) & ~sample.part & lexicon.content[sample.word]))
        self.vectors, count = (
            np.zeros((len(lexicon.folds), model.hidden), dtype=np.float32),
            np.zeros(len(lexicon.folds)),
        )
        order, starts = _by_row(ends)
        for batch, states in _middle(model, study, self.sentences.number, chosen):
            for row, sentence in zip(batch.tolist(), states, strict=True):
                prefixes_here = order[starts[row] : starts[row + 1]]
                lemma = lexicon.lemma[ends.word[prefixes_here]]
                np.add.at(self.vectors, lemma, sentence[ends.position[prefixes_here]])
                np.add.at(count, lemma, 1)
        occurring = count > 0
        self.vectors[occurring] /= count[occurring, None]
        self.vectors[occurring] -= self.vectors[occurring].mean(0)
        self.included = occurring[lexicon.lemma] & lexicon.content

    def ends(self, prefixes: Prefixes) -> Array:
        return prefixes.last - 1

    def read(self, rows: Array) -> Iterator[SentenceStates]:
        starts, words = self.sentences.starts, self.sentences.words
        for first in range(0, len(rows), _SENTENCES):
            batch_rows = rows[first : first + _SENTENCES]
            places_by_row = [np.flatnonzero(self.included[words[starts[row] : starts[row + 1]]]) for row in batch_rows]
            longest = max(1, *(len(places) for places in places_by_row))
            where = np.full((len(batch_rows), longest), -1)
            states = np.zeros((len(batch_rows), longest, self.vectors.shape[1]), dtype=np.float32)
            for i, (row, places) in enumerate(zip(batch_rows, places_by_row, strict=True)):
                where[i, : len(places)] = places
                states[i, : len(places)] = self.vectors[self.sentences.lexicon.lemma[words[starts[row] + places]]]
            yield SentenceStates(batch_rows, torch.from_numpy(states), where)


def _middle(model: MemoryModel, study: Study, numbers: Array, rows: Array) -> Iterator[tuple[Array, Array]]:
    """The outputs of the middle layer, in batches of sentences of one length: batch × pos × hidden."""
    tokens = tokens_of(study.path("sentences.parquet"), numbers[rows])
    texts = [tokens[number] for number in numbers[rows].tolist()]
    lengths = np.array([len(text) for text in texts])
    for same in by_length(lengths, tokens=_TOKENS, rows=_TOKENS):
        length = int(lengths[same[0]])
        inputs = sentence_inputs(model, np.stack([texts[i] for i in same]), bos_of(study, model))
        row, position = (torch.from_numpy(axis.ravel()) for axis in np.mgrid[: len(same), -length:0])
        states = model.states_at(inputs, row, position, layers=[model.layers // 2]).output[0]
        yield rows[same], states.float().cpu().numpy().reshape(len(same), length, -1)


class Vectors(NamedTuple):
    """The embedding of each prefix and of its last word, one row each; zeros if there is none."""

    whole: Array
    last: Array


def embed(reader: Reader, projection: "Projection", prefixes: Prefixes) -> Vectors:
    """The vectors of prefixes."""
    whole, last = (np.zeros((len(prefixes), projection.width), dtype=np.float16) for _ in range(2))
    by_row, ends = _by_row(prefixes), reader.ends(prefixes)
    for states in reader.read(np.unique(prefixes.row)):
        owner, means, final = _prefix_states(states, ends, by_row)
        whole[owner], last[owner] = projection.project(means, final)
    last[prefixes.part | (not reader.senses)] = 0
    return Vectors(whole, last)


def fit_projection(reader: Reader, prefixes: Prefixes, *, seed: int) -> "Projection":
    """A projection fitted to the vectors of prefixes from some of their sentences."""
    rows = np.unique(prefixes.row)
    chosen = rows[np.sort(np.random.default_rng([seed, 3]).permutation(len(rows))[:_FIT_SENTENCES])]
    by_row, ends = _by_row(prefixes), reader.ends(prefixes)
    vectors = [_prefix_states(states, ends, by_row)[1:] for states in reader.read(chosen)]
    return Projection(torch.cat([means for means, _ in vectors]), torch.cat([last for _, last in vectors]))


def _by_row(prefixes: Prefixes) -> tuple[Array, Array]:
    """The prefixes in the order of their sentences, and where those of each sentence start."""
    order = np.argsort(prefixes.row, kind="stable")
    return order, np.searchsorted(prefixes.row[order], np.arange(len(prefixes.sentences.number) + 1))


def _prefix_states(read: SentenceStates, ends: Array, by_row: tuple[Array, Array]) -> tuple[Array, Tensor, Tensor]:
    """For the prefixes of some sentences: their rows, the mean of their vectors, and the last vector; zeros if there is none."""
    order, starts = by_row
    owner = np.concatenate([order[starts[row] : starts[row + 1]] for row in read.rows])
    batch = np.repeat(np.arange(len(read.rows)), starts[read.rows + 1] - starts[read.rows])
    counted = read.places >= 0
    within = counted[batch] & (read.places[batch] <= ends[owner][:, None])
    number = within.sum(1)
    final = np.where(number > 0, within.shape[1] - 1 - np.argmax(within[:, ::-1], 1), 0)
    states = torch.where(torch.from_numpy(counted)[:, :, None], read.states.cpu(), 0.0)  # padding may contain NaN
    sums = torch.cumsum(states, 1)[batch, final]
    nonempty = torch.from_numpy(number > 0)[:, None]
    means = torch.where(nonempty, sums / torch.from_numpy(np.maximum(number, 1))[:, None], 0.0)
    at_end = torch.from_numpy(read.places[batch, final] == ends[owner])[:, None] & nonempty
    return owner, means, torch.where(at_end, states[batch, final], 0.0)


class Projection:
    """Projects vectors on their main directions, after scaling down the giant dimensions that some models have."""

    def __init__(self, whole: Tensor, last: Tensor) -> None:
        self._maps = [_directions(whole), _directions(last)]
        self.width = self._maps[0][2].shape[1]

    def project(self, *vectors: Tensor) -> list[Array]:
        projected = []
        for (mean, scale, directions), originals in zip(self._maps, vectors, strict=True):
            nonzero = originals.abs().sum(1, keepdim=True) > 0
            projected.append((((originals - mean) / scale) @ directions * nonzero).numpy().astype(np.float16))
        return projected


def _directions(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    vectors = vectors[vectors.abs().sum(1) > 0]
    if len(vectors) < 2:
        vectors = torch.zeros(2, vectors.shape[1])
    mean, spread = vectors.mean(0), vectors.std(0)
    scale = (spread / (_GIANT * spread.median()).clamp_min(1e-9)).clamp_min(1.0)
    scaled = (vectors - mean) / scale
    _, directions = torch.linalg.eigh(scaled.T @ scaled)
    return mean, scale, directions[:, -_WIDTH:]
