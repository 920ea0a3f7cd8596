"""What prefixes mean, as vectors: the mean over a prefix of what an encoder, or the studied model's middle layer, makes of it.

A sentence is read once and all its prefixes are means over its first vectors. An encoder looks both ways, so these also hold a
little of what follows; the prefixes that triggers are held against are read in the same way.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.corpus.batches import Array
from ffscope.corpus.prefixes import tokens_of
from ffscope.models.encoder import Encoder
from ffscope.models.memory_model import MemoryModel
from ffscope.patterns.prefixes import Prefixes
from ffscope.running.passes import bos_of, by_length, sentence_inputs
from ffscope.study import Study

_TOKENS = 4096  # of a batch
_WIDTH = 64  # of what is kept of a vector
_GIANT = 4.0  # a dimension that varies so many times as much as others is brought down to this
_FIRST = 1000  # sentences from which it is learnt what to keep
_UNSAID = 20  # the most frequent words, a third of a text, say little about it


class Read(NamedTuple):
    """Sentences that were read: the vector of each piece, and its place in the sentence, which rises; -1 where there is none."""

    rows: Array
    states: Tensor  # batch × pos × hidden
    places: Array  # batch × pos


class Reader(ABC):
    """Reads sentences, given by their rows, and says where in them a prefix ends."""

    @abstractmethod
    def read(self, rows: Array) -> Iterator[Read]: ...

    @abstractmethod
    def ends(self, prefixes: Prefixes) -> Array: ...


class EncoderReader(Reader):
    """An encoder over the words of sentences, without the most frequent and without punctuation."""

    def __init__(self, encoder: Encoder, prefixes: Prefixes) -> None:
        self.encoder, self.sentences = encoder, prefixes.sentences
        lexicon = self.sentences.lexicon
        often = np.bincount(lexicon.folded[self.sentences.words], minlength=len(lexicon.folds))
        unsaid = np.isin(lexicon.folded, np.argsort(-often, kind="stable")[:_UNSAID])
        letters = np.array([any(map(str.isalnum, word)) for word in lexicon.spelt])
        self.said = letters & ~unsaid if len(lexicon.folds) > 10 * _UNSAID else letters

    def ends(self, prefixes: Prefixes) -> Array:
        return prefixes.last - prefixes.part  # a word that goes on is not read yet

    def read(self, rows: Array) -> Iterator[Read]:
        for start in range(0, len(rows), 4096):  # sentences at a time, so that few pieces wait
            some = rows[start : start + 4096]
            kept = [self._kept(int(row)) for row in some]
            cut = self.encoder.pieces([words for words, _ in kept])
            lengths = np.array([len(ids) for ids, _ in cut])
            order = np.argsort(lengths, kind="stable")
            size = max(1, _TOKENS // max(int(lengths.max(initial=1)), 1))
            for first in range(0, len(order), size):
                chosen = order[first : first + size]
                yield self._batch(some[chosen], [cut[i] for i in chosen], [kept[i][1] for i in chosen])

    def _kept(self, row: int) -> tuple[list[str], Array]:
        words = self.sentences.words[self.sentences.starts[row] : self.sentences.starts[row + 1]]
        places = np.flatnonzero(self.said[words])
        return [self.sentences.lexicon.spelt[word] for word in words[places]], places

    def _batch(self, rows: Array, cut: list[tuple[list[int], list[int]]], places: list[Array]) -> Read:
        longest = max(len(ids) for ids, _ in cut)
        ids, mask = np.zeros((2, len(cut), longest), dtype=np.int64)
        where = np.full((len(cut), longest), -1)
        for row, (numbers, words) in enumerate(cut):
            ids[row, : len(numbers)], mask[row, : len(numbers)] = numbers, 1
            of_word = np.array(words)
            where[row, : len(numbers)][of_word >= 0] = places[row][of_word[of_word >= 0]]
        return Read(rows, self.encoder.states(torch.from_numpy(ids), torch.from_numpy(mask)), where)


class ModelReader(Reader):
    """The studied model's middle layer over the tokens of sentences."""

    def __init__(self, model: MemoryModel, study: Study, prefixes: Prefixes) -> None:
        self.model, self.bos = model, bos_of(study, model)
        self.layer = model.layers // 2
        self.numbers = prefixes.sentences.number
        self.tokens = tokens_of(study.path("sentences.parquet"), self.numbers)

    def ends(self, prefixes: Prefixes) -> Array:
        return prefixes.position

    def read(self, rows: Array) -> Iterator[Read]:
        texts = [self.tokens[number] for number in self.numbers[rows].tolist()]
        lengths = np.array([len(text) for text in texts])
        for same in by_length(lengths, tokens=_TOKENS, rows=_TOKENS):
            length = int(lengths[same[0]])
            inputs = sentence_inputs(self.model, np.stack([texts[i] for i in same]), self.bos)
            row, position = (torch.from_numpy(axis.ravel()) for axis in np.mgrid[: len(same), -length:0])
            states = self.model.states_at(inputs, row, position, layers=[self.layer]).output[0]
            places = np.tile(np.arange(length), (len(same), 1))
            yield Read(rows[same], states.float().reshape(len(same), length, -1), places)


class Vectors(NamedTuple):
    """Of each prefix its meaning and that of its last word, each as a row; rows of zeros where there is nothing to read."""

    whole: Array
    last: Array


def read_vectors(reader: Reader, kept: "Kept", prefixes: Prefixes) -> Vectors:
    """The vectors of prefixes, read by an encoder or a model."""
    whole, last = (np.zeros((len(prefixes), kept.width), dtype=np.float16) for _ in range(2))
    by_row, ends = _by_row(prefixes), reader.ends(prefixes)
    for read in reader.read(np.unique(prefixes.row)):
        owner, means, final = _prefix_states(read, ends, by_row)
        whole[owner], last[owner] = kept.project(means, final)
    last[prefixes.part] = 0
    return Vectors(whole, last)


def learn(reader: Reader, prefixes: Prefixes, *, seed: int) -> "Kept":
    """What to keep of the vectors of prefixes, by some of their sentences."""
    rows = np.unique(prefixes.row)
    some = rows[np.sort(np.random.default_rng([seed, 3]).permutation(len(rows))[:_FIRST])]
    by_row, ends = _by_row(prefixes), reader.ends(prefixes)
    found = [_prefix_states(read, ends, by_row)[1:] for read in reader.read(some)]
    return Kept(torch.cat([means for means, _ in found]), torch.cat([last for _, last in found]))


def _by_row(prefixes: Prefixes) -> tuple[Array, Array]:
    """The prefixes in the order of their sentences, and where each sentence's begin."""
    order = np.argsort(prefixes.row, kind="stable")
    return order, np.searchsorted(prefixes.row[order], np.arange(len(prefixes.sentences.number) + 1))


def _prefix_states(read: Read, ends: Array, by_row: tuple[Array, Array]) -> tuple[Array, Tensor, Tensor]:
    """Of the prefixes of some sentences: which they are, the mean of their vectors, and the last vector; 0 where there is none."""
    order, starts = by_row
    owner = np.concatenate([order[starts[row] : starts[row + 1]] for row in read.rows])
    batch = np.repeat(np.arange(len(read.rows)), starts[read.rows + 1] - starts[read.rows])
    counted = read.places >= 0
    within = counted[batch] & (read.places[batch] <= ends[owner][:, None])
    number = within.sum(1)
    final = np.where(number > 0, within.shape[1] - 1 - np.argmax(within[:, ::-1], 1), 0)
    states = read.states.cpu() * torch.from_numpy(counted)[:, :, None]
    sums = torch.cumsum(states, 1)[batch, final]
    there = torch.from_numpy(number > 0)[:, None]
    means = sums / torch.from_numpy(np.maximum(number, 1))[:, None] * there
    at_end = torch.from_numpy(read.places[batch, final] == ends[owner])[:, None] & there
    return owner, means, states[batch, final] * at_end


class Kept:
    """What is kept of vectors: their main directions, after giant dimensions, which some models have, were brought down."""

    def __init__(self, whole: Tensor, last: Tensor) -> None:
        self._maps = [_directions(whole), _directions(last)]
        self.width = self._maps[0][2].shape[1]

    def project(self, *vectors: Tensor) -> list[Array]:
        made = []
        for (mean, scale, directions), some in zip(self._maps, vectors, strict=True):
            there = some.abs().sum(1, keepdim=True) > 0
            made.append((((some - mean) / scale) @ directions * there).numpy().astype(np.float16))
        return made


def _directions(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    vectors = vectors[vectors.abs().sum(1) > 0]
    if len(vectors) < 2:
        vectors = torch.zeros(2, vectors.shape[1])
    mean, spread = vectors.mean(0), vectors.std(0)
    scale = (spread / (_GIANT * spread.median()).clamp_min(1e-9)).clamp_min(1.0)
    scaled = (vectors - mean) / scale
    _, found = torch.linalg.eigh(scaled.T @ scaled)
    return mean, scale, found[:, -_WIDTH:]
