"""Means, mean squares and, for pairs of memories, mean products of the coefficients of two models."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array, Float, Int
from ffscope.comparison.coefficients import coefficients
from ffscope.comparison.rotation import Rotation
from ffscope.models.memory_model import MemoryModel
from ffscope.search.text_pass import TextBatch

State = dict[str, Tensor]
_CONSTANT = 1e-10  # a variance below this share of the mean square is rounding


class Moments(NamedTuple):
    """Of every memory of one model, over the sample."""

    mean: Float[Array, "memory"]
    square: Float[Array, "memory"]

    @property
    def deviation(self) -> Float[Array, "memory"]:
        """The standard deviation; 0 for a coefficient that is constant up to rounding."""
        variance = self.square - self.mean**2
        return np.sqrt(np.where(variance > _CONSTANT * self.square, variance, 0.0))


def moments_of(state: State, side: str) -> Moments:
    """The moments of one side (before, after, rotated) from its sums."""
    count = float(state["count"])
    return Moments((state[f"{side}_sum"] / count).numpy(), (state[f"{side}_square"] / count).numpy())


@dataclass(frozen=True)
class SumsOver:
    """f(model after, batches) returns sums over their tokens of the coefficients of both models, and of their squares.

    With a rotation, also of the coefficients along its directions; with partners, of the products of each memory and its partner.
    """

    before: MemoryModel
    bos: int | None
    rotation: Rotation | None = None
    partner: Int[Array, "memory"] | None = None

    def __call__(self, model: MemoryModel, batches: list[TextBatch]) -> State:
        """The sums, in float64."""
        state: State = {"count": torch.tensor(sum(batch.tokens.size for batch in batches))}
        for batch in batches:
            after = coefficients(model, batch.tokens, self.bos)
            before = coefficients(self.before, batch.tokens, self.bos).to(after.device)
            if self.partner is not None:
                partner = torch.from_numpy(self.partner).to(after.device)
                _add(state, "product", (before[:, partner].double() * after).sum(0))
            sides = {"before": before, "after": after}
            if self.rotation is not None:
                sides["rotated"] = self.rotation(before)
            for side, numbers in sides.items():
                exact = numbers.double()
                _add(state, f"{side}_sum", exact.sum(0))
                _add(state, f"{side}_square", exact.square().sum(0))
        return state


def _add(state: State, name: str, term: Tensor) -> None:
    state[name] = state[name] + term.cpu() if name in state else term.cpu()


def correlations(before: Moments, after: Moments, product: Float[Array, "memory"]) -> Float[Array, "memory"]:
    """The correlation of each memory with its partner; NaN if one of the two is constant."""
    deviations = before.deviation * after.deviation
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = (product - before.mean * after.mean) / deviations
    return np.where(deviations > 0, np.clip(ratio, -1, 1), np.nan)
