"""Computes the vectors of words, with an encoder or with the studied model's middle layer.

An encoder reads every word alone, once, so that the time does not grow with the text. The studied model's own states at a trigger
are the input of its key, and would be similar in any model, even a random one. So only word vectors are taken from it, each the
mean over occurrences of the word in the corpus, and its last words are not compared.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.corpus.prefixes import tokens_of
from ffscope.models.encoder import Encoder
from ffscope.models.memory_model import MemoryModel
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.word_vectors import WordVectors, comparable, projected
from ffscope.progress import Progress, ProgressCallback
from ffscope.search.passes import bos_of, by_length, sentence_inputs
from ffscope.study.folder import Study

_TOKENS = 4096  # per batch
_WORD_SENTENCES = 4000  # from which the studied model's word vectors are computed
_WORDS = 15_000  # the most frequent words are read; the others are nearly all names and misspellings
_PIECE = 4096  # words that are read before their vectors are saved

Saved = Callable[[str, Callable[[], Array]], Array]  # computes an array, or loads it if it was saved under this name


def encoder_vectors(encoder: Encoder, prefixes: Prefixes, saved: Saved, progress: ProgressCallback) -> WordVectors:
    """An encoder's vectors of the most frequent words, each read alone. Punctuation has none."""
    lexicon = prefixes.sentences.lexicon
    letters = np.array([any(map(str.isalnum, word)) for word in lexicon.folds])
    order = np.lexsort((np.arange(len(letters)), -lexicon.frequency))
    words = order[(letters & (lexicon.frequency > 0))[order]][:_WORDS]
    pieces = []
    for start in range(0, len(words), _PIECE):
        progress(Progress("patterns: reading words", start, len(words), unit="words"))
        spelt = [lexicon.spellings[word] for word in words[start : start + _PIECE].tolist()]
        pieces.append(saved(f"words-{start:08}.npy", lambda spelt=spelt: encoder.word_vectors(spelt)))  # type: ignore[misc]
    progress(Progress("patterns: reading words", len(words), len(words), unit="words"))
    vectors = np.concatenate(pieces) if pieces else np.zeros((0, 2, 1))
    inputs, outputs = comparable(vectors[:, 0]), comparable(vectors[:, 1])
    return projected(lexicon, words, np.concatenate([inputs, outputs], 1), senses=True)


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
    return projected(lexicon, occurring, comparable(means), senses=False)


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
