"""What values do to the vocabulary: the moments of their logits, and how these follow the frequency of tokens."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array, Float, Int
from ffscope.memory_types.frequency import FrequencyAxis
from ffscope.models.lenses.base import Lens


class ValueStatistics(NamedTuple):
    """Of the logits of each value of a layer; NaN where it is not defined, as for a value of zeros."""

    skew: Float[Array, "memory"]
    kurtosis: Float[Array, "memory"]  # 3 for a normal distribution
    frequency: Float[Array, "memory"]  # correlation with the log frequency of tokens
    variance: Float[Array, "memory"]  # of the logits of the value with norm 1


@torch.no_grad()
def value_statistics(
    lens: Lens, layer: int, axis: FrequencyAxis | None, norms: Float[Array, "memory"]
) -> ValueStatistics:
    """The statistics of a layer's values, which have these norms, under a lens."""
    parts = [_of_chunk(logits, axis) for logits in lens.value_chunks(layer)]
    skew, kurtosis, frequency, variance = (torch.cat(part).double().cpu().numpy() for part in zip(*parts, strict=True))
    return ValueStatistics(skew, kurtosis, frequency, _unit_variance(lens, layer, variance, norms))


def _of_chunk(logits: Float[Tensor, "n vocab"], axis: FrequencyAxis | None) -> tuple[Tensor, ...]:
    centred = logits - logits.mean(-1, keepdim=True)
    variance = centred.square().mean(-1)
    scores = centred / variance.sqrt()[:, None]
    squares = scores.square()
    frequency = torch.full_like(variance, torch.nan) if axis is None else axis.correlations(scores)
    return (squares * scores).mean(-1), squares.square_().mean(-1), frequency, variance


def _unit_variance(lens: Lens, layer: int, variance: Array, norms: Array) -> Array:
    """The variance of the logits of values with norm 1."""
    if lens.linear:
        with np.errstate(invalid="ignore"):
            return variance / norms**2
    updates = lens.value_updates(layer).float()
    units = updates / updates.norm(dim=-1, keepdim=True)
    variances = [lens.updates(chunk, layer).var(-1, correction=0) for chunk in units.split(lens.chunk)]
    return torch.cat(variances).double().cpu().numpy()


@torch.no_grad()
def suppressed_shares(
    lens: Lens, layer: int, memories: Int[Array, "some"], tokens: list[list[int]]
) -> Float[Array, "some"]:
    """The shares of each memory's own `tokens` whose logit in its value is below the mean over the vocabulary."""
    shares: list[float] = []
    for logits in lens.value_chunks(layer, torch.from_numpy(memories)):
        means = logits.mean(-1)
        for row, mean in zip(logits, means, strict=True):
            shares.append((row[tokens[len(shares)]] < mean).double().mean().item())
    return np.array(shares)
