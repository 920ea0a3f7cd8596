"""What prefixes mean, as vectors: the mean over their words of what an encoder, or the studied model's middle layer, makes of them.

An encoder reads a sentence once, and all its prefixes are means over its first vectors. It looks both ways, so these also hold a
little of what follows; the prefixes that triggers are held against are read in the same way. The studied model's own states at a
trigger are what its key listens to, and would be alike in any model, a random one too. So of it only the vectors of words are
taken, each the mean over where the word stands in the text at large, and the last word of a prefix is left out.
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

_TOKENS = 4096  # of a batch
_WIDTH = 64  # of what is kept of a vector
_GIANT = 4.0  # a dimension that varies so many times as much as others is brought down to this
_FIRST = 1000  # sentences from which it is learnt what to keep
_WORDS_FROM = 4000  # sentences from which the studied model's vectors of words are taken
_SENTENCES = 64  # that are read at once from vectors of words
_UNSAID = 20  # the most frequent words, a third of a text, say little about it


class Read(NamedTuple):
    """Sentences that were read: the vector of each piece, and its place in the sentence, which rises; -1 where there is none."""

    rows: Array
    states: Tensor  # batch × pos × hidden
    places: Array  # batch × pos


class Reader(ABC):
    """Reads sentences, given by their rows, and says where in them a prefix ends."""

    senses = True  # whether the last word's own sense may be compared

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
        longest = max(1, *(len(ids) for ids, _ in cut))
        ids, mask = np.zeros((2, len(cut), longest), dtype=np.int64)
        where = np.full((len(cut), longest), -1)
        for row, (numbers, words) in enumerate(cut):
            ids[row, : len(numbers)], mask[row, : len(numbers)] = numbers, 1
            of_word = np.array(words, dtype=np.int64)
            where[row, : len(numbers)][of_word >= 0] = places[row][of_word[of_word >= 0]]
        return Read(rows, self.encoder.states(torch.from_numpy(ids), torch.from_numpy(mask)), where)


class ModelReader(Reader):
    """Words by the studied model's middle layer: each content word is the mean over some of the places where it stands."""

    senses = False

    def __init__(self, model: MemoryModel, study: Study, sample: Prefixes, *, seed: int) -> None:
        self.sentences = sample.sentences
        lexicon = self.sentences.lexicon
        rows = np.unique(sample.row)
        some = np.sort(np.random.default_rng([seed, 10]).permutation(rows)[:_WORDS_FROM])
        ends = sample.take(np.flatnonzero(np.isin(sample.row, some) & ~sample.part & lexicon.content[sample.word]))
        self.vectors, count = (
            np.zeros((len(lexicon.folds), model.hidden), dtype=np.float32),
            np.zeros(len(lexicon.folds)),
        )
        order, starts = _by_row(ends)
        for batch, states in _middle(model, study, self.sentences.number, some):
            for row, sentence in zip(batch.tolist(), states, strict=True):
                here = order[starts[row] : starts[row + 1]]
                lemma = lexicon.lemma[ends.word[here]]
                np.add.at(self.vectors, lemma, sentence[ends.position[here]])
                np.add.at(count, lemma, 1)
        met = count > 0
        self.vectors[met] /= count[met, None]
        self.vectors[met] -= self.vectors[met].mean(0)
        self.said = met[lexicon.lemma] & lexicon.content

    def ends(self, prefixes: Prefixes) -> Array:
        return prefixes.last - 1

    def read(self, rows: Array) -> Iterator[Read]:
        starts, words = self.sentences.starts, self.sentences.words
        for first in range(0, len(rows), _SENTENCES):
            some = rows[first : first + _SENTENCES]
            placed = [np.flatnonzero(self.said[words[starts[row] : starts[row + 1]]]) for row in some]
            longest = max(1, *(len(places) for places in placed))
            where = np.full((len(some), longest), -1)
            states = np.zeros((len(some), longest, self.vectors.shape[1]), dtype=np.float32)
            for i, (row, places) in enumerate(zip(some, placed, strict=True)):
                where[i, : len(places)] = places
                states[i, : len(places)] = self.vectors[self.sentences.lexicon.lemma[words[starts[row] + places]]]
            yield Read(some, torch.from_numpy(states), where)


def _middle(model: MemoryModel, study: Study, numbers: Array, rows: Array) -> Iterator[tuple[Array, Array]]:
    """The outputs of the middle layer over sentences of one length, some at a time: batch × pos × hidden."""
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
    """Of each prefix its meaning and that of its last word, each as a row; rows of zeros where there is nothing to read."""

    whole: Array
    last: Array


def read_vectors(reader: Reader, kept: "Projection", prefixes: Prefixes) -> Vectors:
    """The vectors of prefixes, read by an encoder or a model."""
    whole, last = (np.zeros((len(prefixes), kept.width), dtype=np.float16) for _ in range(2))
    by_row, ends = _by_row(prefixes), reader.ends(prefixes)
    for read in reader.read(np.unique(prefixes.row)):
        owner, means, final = _prefix_states(read, ends, by_row)
        whole[owner], last[owner] = kept.project(means, final)
    last[prefixes.part | (not reader.senses)] = 0
    return Vectors(whole, last)


def learn(reader: Reader, prefixes: Prefixes, *, seed: int) -> "Projection":
    """What to keep of the vectors of prefixes, by some of their sentences."""
    rows = np.unique(prefixes.row)
    some = rows[np.sort(np.random.default_rng([seed, 3]).permutation(len(rows))[:_FIRST])]
    by_row, ends = _by_row(prefixes), reader.ends(prefixes)
    found = [_prefix_states(read, ends, by_row)[1:] for read in reader.read(some)]
    return Projection(torch.cat([means for means, _ in found]), torch.cat([last for _, last in found]))


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
    states = torch.where(
        torch.from_numpy(counted)[:, :, None], read.states.cpu(), 0.0
    )  # what was not read may be no number
    sums = torch.cumsum(states, 1)[batch, final]
    there = torch.from_numpy(number > 0)[:, None]
    means = torch.where(there, sums / torch.from_numpy(np.maximum(number, 1))[:, None], 0.0)
    at_end = torch.from_numpy(read.places[batch, final] == ends[owner])[:, None] & there
    return owner, means, torch.where(at_end, states[batch, final], 0.0)


class Projection:
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
