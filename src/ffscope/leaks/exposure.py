"""The exposure of canaries: how much more probable they are than random strings of their format (Carlini et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log2, pi, sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.effects.readout import read_losses
from ffscope.leaks.canaries import Canary
from ffscope.leaks.checks import check_completes
from ffscope.models.info import describe
from ffscope.models.inputs import token_ids
from ffscope.models.memory_model import MemoryModel
from ffscope.search.passes import by_length, first_token, sentence_inputs

State = dict[str, Tensor]
_DEVIATIONS, _STEPS = 60, 60_001  # of the integral over the lower tail of a distribution
_MOST_SKEWED = 0.99  # a skew-normal distribution has a skewness below 0.9953


@dataclass(frozen=True)
class Exposure:
    """How exposed a canary is, in bits, among some candidates of its format.

    `exposure` is log2 |R| - log2 rank where they are all others (`all_candidates`), else log2 of (candidates + 1) / rank: a lower
    bound if no candidate is as probable. `modelled` is read from a skew-normal distribution of their log-perplexities; None if the
    exposure is exact.
    """

    canary: Canary
    log_perplexity: float
    candidates: int
    rank: int
    all_candidates: bool
    exposure: float
    modelled: float | None


@dataclass(frozen=True)
class LogPerplexities:
    """f(model, texts) returns the log-perplexity of each text, a list of tokens, in bits."""

    bos: int | None
    tokens: int  # in one pass

    @torch.no_grad()
    def __call__(self, model: MemoryModel, texts: list[Array]) -> State:
        """The log-perplexities: minus the sum of the tokens' log2-probabilities. Without BOS, the first token has none."""
        bits = torch.zeros(len(texts), dtype=torch.float64)
        for rows in by_length(np.array([len(text) for text in texts], dtype=np.int64), tokens=self.tokens):
            bits[torch.from_numpy(rows)] = self._of_batch(model, np.stack([texts[row] for row in rows.tolist()]))
        return {"bits": bits}

    def _of_batch(self, model: MemoryModel, tokens: Array) -> Tensor:
        predicted = tokens if self.bos is not None else tokens[:, 1:]
        count, size = predicted.shape
        if not size:
            return torch.zeros(count, dtype=torch.float64)
        rows = torch.arange(count, device=model.device).repeat_interleave(size)
        places = torch.arange(-size - 1, -1, device=model.device).repeat(count)
        inputs = sentence_inputs(model, tokens, self.bos)
        states = model.states_at(inputs, rows, places, layers=[model.layers - 1], coefficients=False).output[0]
        losses = read_losses(model, states, torch.from_numpy(predicted.reshape(-1)).to(model.device)).loss
        return losses.double().reshape(count, size).sum(1).cpu() / log(2)


def texts_of(canary: Canary, tokenizer: Any, samples: int, seed: tuple[int, ...]) -> list[Array]:
    """The tokens of a canary, and of the candidates that it is compared with."""
    texts = [canary.text, *canary.candidates(samples, seed)]
    return [np.array(token_ids(tokenizer, text), dtype=np.int64) for text in texts]


def seed_of(seed: int, number: int) -> tuple[int, ...]:
    """The seed of the candidates of the canary with this number."""
    return (seed, *b"canaries", number)


def exposure_of(canary: Canary, bits: Array) -> Exposure:
    """The exposure, from the log-perplexities of the canary and of its candidates."""
    own, others = float(bits[0]), bits[1:]
    rank = 1 + int(np.count_nonzero(others <= own))
    complete = len(others) == canary.size - 1
    exposure = (canary.space if complete else log2(len(others) + 1)) - log2(rank)
    modelled = None if complete else _modelled(own, others, canary.space)
    return Exposure(canary, own, len(others), rank, complete, exposure, modelled)


def _modelled(own: float, others: Array, space: float) -> float | None:
    """-log2 of the probability of a log-perplexity up to `own`, in the skew-normal distribution with the moments of the others.

    At most the number of bits of the format, since no rank is below 1.
    """
    mean, deviation = float(others.mean()), float(others.std())
    if deviation == 0:
        return None
    skewness = float((((others - mean) / deviation) ** 3).mean())
    size = min(abs(skewness), _MOST_SKEWED) ** (2 / 3)
    delta = sqrt(pi / 2 * size / (size + ((4 - pi) / 2) ** (2 / 3))) * (1 if skewness >= 0 else -1)
    shape = delta / sqrt(1 - delta * delta)
    scale = deviation / sqrt(1 - 2 * delta * delta / pi)
    location = mean - scale * delta * sqrt(2 / pi)
    end = (own - location) / scale
    points = torch.linspace(min(end, 0) - _DEVIATIONS, end, _STEPS, dtype=torch.float64)
    density = log(2) - points.square() / 2 - log(2 * pi) / 2 + torch.special.log_ndtr(shape * points)
    step = float(points[1] - points[0])
    probability = float(torch.logsumexp(density, 0)) + log(step)
    return max(0.0, min(-probability / log(2), space))


def exposure(
    model: MemoryModel, canaries: Sequence[str], *, samples: int = 1000, seed: int = 0, bos: bool = True
) -> list[Exposure]:
    """The exposure of strings, each with its secret part in braces: `ffscope.exposure(model, ["my PIN is {4711}"])`.

    Each is compared with so many random strings of the same format, or with all if there are no more.
    """
    check_completes(describe(model))
    function = LogPerplexities(first_token(model, bos=bos), tokens=4096)
    rows = []
    for number, line in enumerate(canaries, start=1):
        canary = Canary.parse(line, f"Canary {number}")
        texts = texts_of(canary, model.tokenizer, samples, seed_of(seed, number))
        rows.append(exposure_of(canary, function(model, texts)["bits"].numpy()))
    return rows
