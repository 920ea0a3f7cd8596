"""The sentences that translators are trained on, in a random order, and those that say when to stop."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from ffscope.axes import Array
from ffscope.corpus.prefixes import chunks, tokens_of
from ffscope.errors import CorpusError
from ffscope.study.folder import Study


class TrainingText(NamedTuple):
    """Sentences by step of the training, and those that are held out of it to say when to stop."""

    steps: list[list[Array]]
    validation: list[Array]


def training_text(study: Study, *, steps: int, tokens: int, validation: int, seed: int) -> TrainingText:
    """About `tokens` tokens per step, from the text that is not held out; a short text is repeated, in another order each time.

    A step has room for at least the longest sentence, so that none is empty.
    The first sentences of the first order, with about `validation` tokens but at most a tenth of the text, are for validation.
    """
    path = study.path("sentences.parquet")
    numbers, lengths = _lengths(path)
    if len(numbers) < 2:
        raise CorpusError(
            "A lens is trained on the text that is not held out, and this study has fewer than two such sentences."
        )
    generator = np.random.default_rng([seed, *b"lens"])
    order = generator.permutation(len(numbers))
    held = max(1, int(np.searchsorted(np.cumsum(lengths[order]), min(validation, lengths.sum() // 10))))
    tokens = max(tokens, int(lengths.max()))
    rows = _repeated(order[held:], lengths, tokens * steps, generator)
    bounds = np.searchsorted(np.cumsum(lengths[rows]), tokens * np.arange(1, steps + 1), side="right")
    sentences = tokens_of(path, numbers[np.unique(np.concatenate([order[:held], rows]))])
    parts = [[sentences[int(numbers[row])] for row in part] for part in np.split(rows, bounds)[:steps]]
    return TrainingText(parts, [sentences[int(numbers[row])] for row in order[:held]])


def _lengths(path: Path) -> tuple[Array, Array]:
    """The numbers and lengths of the sentences that are not held out and have tokens."""
    parts = [(chunk.sentences, chunk.lengths) for chunk in chunks(path)]
    numbers, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True)) if parts else ([], [])
    numbers, lengths = np.array(numbers), np.array(lengths, dtype=np.int64)
    return numbers[lengths > 0], lengths[lengths > 0]


def _repeated(rows: Array, lengths: Array, tokens: int, generator: np.random.Generator) -> Array:
    """Rows in random orders, one after the other, until they have that many tokens."""
    parts, total = [rows], int(lengths[rows].sum())
    while total * len(parts) < tokens:
        parts.append(generator.permutation(rows))
    return np.concatenate(parts)
