"""The quantities that define types, for the memories of a block."""

from typing import NamedTuple

import numpy as np

from ffscope.axes import Array, Int
from ffscope.memory_types.confidence import percentiles
from ffscope.memory_types.firing import Block, Firings, Prefixes
from ffscope.memory_types.frequency import FrequencyAxis
from ffscope.memory_types.ngrams import Covers, Fires, Limits, Ngrams, covers, ngrams_of
from ffscope.memory_types.positions import Window, mutual_information, prefixes_in
from ffscope.memory_types.values import suppressed_shares, value_statistics
from ffscope.models.lenses.base import Lens
from ffscope.models.linear_parts import norms_in_residual
from ffscope.models.memory_model import MemoryModel

Quantities = dict[str, Array]
NGRAMS = ("unigrams", "bigrams", "trigrams")
_ENTRIES = 2**20  # of a table of memories × prefixes, or × n-grams


class Text(NamedTuple):
    """The prefixes on which firings were recorded, what they end with, and which of them compare positions."""

    prefixes: Prefixes
    ngrams: tuple[Ngrams, ...]
    window: Window | None

    @classmethod
    def of(cls, prefixes: Prefixes, window: Window | None) -> "Text":
        """With its unigrams, bigrams and trigrams."""
        return cls(prefixes, tuple(ngrams_of(prefixes, n) for n in range(1, len(NGRAMS) + 1)), window)


def firing_quantities(firings: Firings, text: Text, limits: Limits) -> tuple[Quantities, list[list[int]]]:
    """The quantities that depend on where the memories fire, and the tokens that detectors detect, n for each n-gram."""
    inside = None if text.window is None else prefixes_in(text.window, text.prefixes)
    parts: list[Quantities] = []
    detected: list[list[int]] = []
    for fired in firings.chunks(_ENTRIES // max(1, len(text.prefixes.tokens))):
        fires = Fires.of(fired)
        by_n = [covers(fires, ngrams, limits) for ngrams in text.ngrams]
        ngram = _shortest(by_n)
        information = np.full(len(fired), np.nan)
        if text.window is not None and inside is not None:
            information = mutual_information(fired, inside, text.window)
        needed = {name: cover.needed for name, cover in zip(NGRAMS, by_n, strict=True)}
        parts.append({"firings": fired.sum(1), **needed, "ngram": ngram, "mutual_information": information})
        detected += [_tokens(by_n, text.ngrams, n, row) for row, n in enumerate(ngram.tolist())]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, detected


def _shortest(by_n: list[Covers]) -> Int[Array, "memory"]:
    """The smallest n whose n-grams a memory detects; 0 for none."""
    detects = np.stack([cover.detects for cover in by_n])
    return np.where(detects.any(0), detects.argmax(0) + 1, 0)


def _tokens(by_n: list[Covers], ngrams: tuple[Ngrams, ...], n: int, row: int) -> list[int]:
    """The tokens of the n-grams that a memory detects."""
    if n == 0:
        return []
    numbers = by_n[n - 1].numbers[row]
    return ngrams[n - 1].tokens[numbers[numbers >= 0]].ravel().tolist()


def value_quantities(model: MemoryModel, lens: Lens | None, block: Block, counts: Array) -> Quantities:
    """The quantities that depend on the values alone. Percentiles are among all values of the layer."""
    layer = model.layer(block.layer)
    norms = norms_in_residual(layer, layer.values()).double().cpu().numpy()
    unknown = np.full(len(norms), np.nan)
    quantities = {"norm": norms, "norm_percentile": percentiles(norms)}
    quantities |= dict.fromkeys(
        ("skew", "kurtosis", "frequency_correlation", "logit_variance", "variance_percentile"), unknown
    )
    if lens is not None:
        axis = FrequencyAxis.of(counts, lens.unembedding.vocab, lens.unembedding.device)
        statistics = value_statistics(lens, block.layer, axis, norms)
        quantities |= {
            "skew": statistics.skew,
            "kurtosis": statistics.kurtosis,
            "frequency_correlation": statistics.frequency,
            "logit_variance": statistics.variance,
            "variance_percentile": percentiles(statistics.variance),
        }
    return {name: numbers[block.memories] for name, numbers in quantities.items()}


def suppression(lens: Lens | None, block: Block, ngram: Int[Array, "memory"], detected: list[list[int]]) -> Array:
    """For each token detector the share of its tokens that its value suppresses; NaN for other memories."""
    shares = np.full(len(block.memories), np.nan)
    if lens is None:
        return shares
    vocab = lens.unembedding.vocab
    tokens = {row: [token for token in detected[row] if token < vocab] for row in np.flatnonzero(ngram == 1).tolist()}
    rows = np.array([row for row, some in tokens.items() if some], dtype=np.int64)
    if len(rows):
        shares[rows] = suppressed_shares(lens, block.layer, block.memories[rows], [tokens[row] for row in rows])
    return shares
