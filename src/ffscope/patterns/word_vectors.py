"""Vectors of words, and of prefixes as the mean over their words: from an encoder, or from the studied model's middle layer.

An encoder reads every word alone, once, so that the time does not grow with the text. The studied model's own states at a trigger
are the input of its key, and would be similar in any model, even a random one. So only word vectors are taken from it, each the
mean over occurrences of the word in the corpus, and its last words are not compared.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.corpus.prefixes import tokens_of
from ffscope.models.encoder import Encoder
from ffscope.models.memory_model import MemoryModel
from ffscope.patterns.clustering import unit_vectors
from ffscope.patterns.prefixes import Prefixes, Sentences
from ffscope.patterns.words import Lexicon
from ffscope.progress import Progress, ProgressCallback
from ffscope.search.passes import bos_of, by_length, sentence_inputs
from ffscope.study.folder import Study

_TOKENS = 4096  # per batch
_WIDTH = 384  # the most dimensions of a vector
_GIANT = 4.0  # a dimension that varies more than this many times as much as the median is scaled down to it
_PREFIXES = 8192  # whose words are gathered at once
_WORD_SENTENCES = 4000  # from which the studied model's word vectors are computed
_WORDS = 20_000  # the most frequent words are read; the others are nearly all names and misspellings
PIECE = 4096  # words that are read before their vectors are saved

Saved = Callable[[str, Callable[[], Array]], Array]  # computes an array, or loads it if it was saved under this name


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


def encoder_vectors(encoder: Encoder, prefixes: Prefixes, saved: Saved, progress: ProgressCallback) -> WordVectors:
    """An encoder's vectors of the most frequent words, each read alone. Punctuation has none."""
    lexicon = prefixes.sentences.lexicon
    letters = np.array([any(map(str.isalnum, word)) for word in lexicon.folds])
    order = np.lexsort((np.arange(len(letters)), -lexicon.frequency))
    words = order[(letters & (lexicon.frequency > 0))[order]][:_WORDS]
    spelling = _frequent_spellings(lexicon, prefixes.sentences)
    pieces = []
    for start in range(0, len(words), PIECE):
        progress(Progress("patterns: reading words", start, len(words), unit="words"))
        spelt = [spelling[word] for word in words[start : start + PIECE].tolist()]
        pieces.append(saved(f"words-{start:08}.npy", lambda spelt=spelt: encoder.word_vectors(spelt)))  # type: ignore[misc]
    progress(Progress("patterns: reading words", len(words), len(words), unit="words"))
    vectors = np.concatenate(pieces) if pieces else np.zeros((0, 2, 1))
    inputs, outputs = _comparable(vectors[:, 0]), _comparable(vectors[:, 1])
    return _projected(lexicon, words, np.concatenate([inputs, outputs], 1), senses=True)


def model_vectors(model: MemoryModel, study: Study, sample: Prefixes, *, seed: int) -> WordVectors:
    """Word vectors from the studied model's middle layer: each content word is the mean over some of its occurrences."""
    lexicon = sample.sentences.lexicon
    rows = np.unique(sample.row)
    chosen = np.sort(np.random.default_rng([seed, 10]).permutation(rows)[:_WORD_SENTENCES])
    ends = sample.take(np.flatnonzero(np.isin(sample.row, chosen) & ~sample.part & lexicon.content[sample.word]))
    vectors, count = np.zeros((len(lexicon.folds), model.hidden), np.float32), np.zeros(len(lexicon.folds))
    order = np.argsort(ends.row, kind="stable")
    starts = np.searchsorted(ends.row[order], np.arange(len(sample.sentences.number) + 1))
    for batch, states in _middle(model, study, sample.sentences.number, chosen):
        for row, sentence in zip(batch.tolist(), states, strict=True):
            prefixes_here = order[starts[row] : starts[row + 1]]
            words = lexicon.folded[ends.word[prefixes_here]]
            np.add.at(vectors, words, sentence[ends.position[prefixes_here]])
            np.add.at(count, words, 1)
    occurring = np.flatnonzero(count)
    means = vectors[occurring] / count[occurring, None]
    return _projected(lexicon, occurring, _comparable(means), senses=False)


def _frequent_spellings(lexicon: Lexicon, sentences: Sentences) -> list[str]:
    """The most frequent spelling of every case-folded word."""
    counts = np.bincount(sentences.words, minlength=len(lexicon.spelt))
    order = np.argsort(counts, kind="stable")  # of equal assignments the last one stays
    spelling = [""] * len(lexicon.folds)
    for word in order.tolist():
        spelling[lexicon.folded[word]] = lexicon.spelt[word]
    return spelling


def _comparable(vectors: Array) -> Array:
    """Centred unit vectors, after scaling down the giant dimensions that some models have."""
    if not len(vectors):
        return vectors
    spread = np.maximum(vectors.std(0), 1e-9)
    return unit_vectors((vectors - vectors.mean(0)) / np.maximum(spread / (_GIANT * np.median(spread)), 1.0))


def _projected(lexicon: Lexicon, words: Array, originals: Array, *, senses: bool) -> WordVectors:
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


def _middle(model: MemoryModel, study: Study, numbers: Array, rows: Array) -> Iterator[tuple[Array, Array]]:
    """The outputs of the middle layer, in batches of sentences of one length: batch × pos × hidden."""
    tokens = tokens_of(study.path("sentences.parquet"), numbers[rows])
    texts = [tokens[number] for number in numbers[rows].tolist()]
    lengths = np.array([len(text) for text in texts])
    for same in by_length(lengths, tokens=_TOKENS, rows=_TOKENS):
        length = int(lengths[same[0]])
        inputs = sentence_inputs(model, np.stack([texts[i] for i in same]), bos_of(study, model))
        row, position = (torch.from_numpy(axis.ravel()) for axis in np.mgrid[: len(same), -length:0])
        states: Tensor = model.states_at(inputs, row, position, layers=[model.layers // 2]).output[0]
        yield rows[same], states.float().cpu().numpy().reshape(len(same), length, -1)
