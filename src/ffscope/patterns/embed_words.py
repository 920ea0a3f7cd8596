"""Computes the vectors of words, with an encoder or with the studied model's middle layer.

An encoder reads every word alone, once, so that the time does not grow with the text. The studied model's own states at a trigger
are the input of its key, and would be similar in any model, even a random one. So only word vectors are taken from it, each the
mean over occurrences of the word in the corpus, and its last words are not compared.
"""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.corpus.prefixes import tokens_of
from ffscope.engines.base import Engine
from ffscope.models.encoder import Encoder
from ffscope.models.info import ModelInfo
from ffscope.models.memory_model import MemoryModel
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.saved_arrays import SavedArrays
from ffscope.patterns.word_vectors import WordVectors, comparable, projected
from ffscope.progress import Progress, ProgressCallback
from ffscope.search.passes import bos_of, by_length, sentence_inputs
from ffscope.study.folder import Study

_TOKENS = 4096  # per batch
_WORD_SENTENCES = 4000  # from which the studied model's word vectors are computed
_WORDS = 15_000  # the most frequent words are read; the others are nearly all names and misspellings
_PIECE = 4096  # words that are read before their vectors are saved


def encoder_vectors(
    engine: Engine, encoder: Encoder, prefixes: Prefixes, saved: SavedArrays, progress: ProgressCallback
) -> WordVectors:
    """An encoder's vectors of the most frequent words, each read alone. Punctuation has none."""
    lexicon = prefixes.sentences.lexicon
    letters = np.array([any(map(str.isalnum, word)) for word in lexicon.folds])
    order = np.lexsort((np.arange(len(letters)), -lexicon.frequency))
    words = order[(letters & (lexicon.frequency > 0))[order]][:_WORDS]
    pieces = {start: saved.load(_file(start)) for start in range(0, len(words), _PIECE)}
    missing = [start for start, piece in pieces.items() if piece is None]
    done = len(words) - sum(len(words[start : start + _PIECE]) for start in missing)
    progress(Progress("patterns: reading words", done, len(words), unit="words"))
    spelt = ((start, [lexicon.spellings[word] for word in words[start : start + _PIECE].tolist()]) for start in missing)
    for start, vectors in engine.map("patterns", partial(_read_words, encoder=encoder), spelt, model=False):
        saved.save(_file(start), vectors)
        pieces[start], done = vectors, done + len(vectors)
        progress(Progress("patterns: reading words", done, len(words), unit="words"))
    vectors = np.concatenate(list(pieces.values())) if pieces else np.zeros((0, 2, 1))
    inputs, outputs = comparable(vectors[:, 0]), comparable(vectors[:, 1])
    return projected(lexicon, words, np.concatenate([inputs, outputs], 1), senses=True)


def _read_words(_model: None, words: list[str], *, encoder: Encoder) -> Array:
    return encoder.word_vectors(words)


def _file(start: int) -> str:
    return f"words-{start:08}.npy"


class WordBatch(NamedTuple):
    """Sentences of one length, and the places of words in them; positions count from the end."""

    tokens: Array
    rows: Array
    positions: Array


def model_vectors(engine: Engine, model: ModelInfo, study: Study, sample: Prefixes, *, seed: int) -> WordVectors:
    """Word vectors from the studied model's middle layer: each content word is the mean over some of its occurrences."""
    lexicon = sample.sentences.lexicon
    rows = np.unique(sample.row)
    chosen = np.sort(np.random.default_rng([seed, 10]).permutation(rows)[:_WORD_SENTENCES])
    ends = sample.take(np.flatnonzero(np.isin(sample.row, chosen) & ~sample.part & lexicon.content[sample.word]))
    batches = list(_word_batches(study, ends, chosen))
    middle = partial(_middle, bos=bos_of(study, model))
    states = dict(engine.map("patterns", middle, enumerate(batch for batch, _ in batches)))
    vectors, count = np.zeros((len(lexicon.folds), model.hidden), np.float32), np.zeros(len(lexicon.folds))
    for number, (_, places) in enumerate(batches):  # in order, since sums of floats depend on it
        words = lexicon.folded[ends.word[places]]
        np.add.at(vectors, words, states.pop(number))
        np.add.at(count, words, 1)
    occurring = np.flatnonzero(count)
    means = vectors[occurring] / count[occurring, None]
    return projected(lexicon, occurring, comparable(means), senses=False)


def _word_batches(study: Study, ends: Prefixes, rows: Array) -> Iterator[tuple[WordBatch, Array]]:
    """Batches of sentences with content words, and which of the ends of words are in each."""
    numbers = ends.sentences.number
    tokens = tokens_of(study.path("sentences.parquet"), numbers[rows])
    texts = [tokens[number] for number in numbers[rows].tolist()]
    lengths = np.array([len(text) for text in texts])
    order = np.argsort(ends.row, kind="stable")
    starts = np.searchsorted(ends.row[order], np.arange(len(numbers) + 1))
    for same in by_length(lengths, tokens=_TOKENS, rows=_TOKENS):
        places = [order[starts[row] : starts[row + 1]] for row in rows[same].tolist()]
        counts = [len(places_in_sentence) for places_in_sentence in places]
        joined = np.concatenate(places)
        if not len(joined):  # no sentence of this length has a content word
            continue
        batch_tokens = np.stack([texts[i] for i in same])
        positions = ends.position[joined].astype(np.int64) - batch_tokens.shape[1]
        yield WordBatch(batch_tokens, np.repeat(np.arange(len(same)), counts), positions), joined


def _middle(model: MemoryModel, batch: WordBatch, *, bos: int | None) -> Array:
    """The outputs of the middle layer at the places of words."""
    rows, positions = torch.from_numpy(batch.rows), torch.from_numpy(batch.positions)
    inputs = sentence_inputs(model, batch.tokens, bos)
    states: Tensor = model.states_at(inputs, rows, positions, layers=[model.layers // 2]).output[0]
    return states.float().cpu().numpy()
