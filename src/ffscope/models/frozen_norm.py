"""Norms with their scale frozen at its value in one run, which makes them linear in the terms of a sum."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float
from ffscope.errors import LensError
from ffscope.models.feed_forward import FeedForward
from ffscope.models.lenses.norm import NormLens
from ffscope.models.linear_parts import to_residual
from ffscope.models.memory_model import MemoryModel
from ffscope.models.tolerance import tolerance

_TOLERANCE = 1e-3  # relative, of a sum of pushes


class LinearLogit(NamedTuple):
    """A token's logit, or A's minus B's, at one state, as a linear function: total = state · direction + bias."""

    logit: float  # as the model computes it
    total: float  # before the cap, or before an adaptive softmax's normalisers
    direction: Float[Tensor, "hidden"]
    bias: float
    cap: float | None
    bands: bool  # whether the total leaves out an adaptive softmax's normalisers


def refuse_norms_between_blocks(model: MemoryModel, layers: list[int]) -> None:
    """Raise if the residual is normalised between blocks, so that a layer's update does not reach the unembedding unchanged."""
    for index in layers:
        layer = model.layer(index)
        normed_residual = len(layer.residual_sites) == 1 and layer.residual_sites[0].side == "out"
        if str(layer.output_site) != "out:." or normed_residual:
            raise LensError(
                f"This {model.model_type} has a norm between its blocks, so no memory pushes the logits directly. "
                "Expected norms only on the inputs of layers. Switch the memory off instead, and compare."
            )


@torch.no_grad()
def logit_at(model: MemoryModel, state: Float[Tensor, "hidden"], *, a: int, b: int | None = None) -> LinearLogit:
    """A's logit, or A's minus B's, at the last output of a position, with the scale of the final norm frozen."""
    lens = model.lens("norm")
    assert isinstance(lens, NormLens)
    at_zero, scores = lens.state_scores(torch.zeros_like(state)).double(), lens.state_scores(state).double()
    linear = lens.update_scores(state)
    factor = _factors(linear[None], (scores - at_zero)[None], limit=_limit(model), target="the logits").item()
    band = lens.unembedding.band
    return LinearLogit(
        logit=_difference(lens.logits(state).double(), a, b).item(),
        total=_difference(scores, a, b).item(),
        direction=factor * _gradient(lambda vector: _difference(lens.update_scores(vector), a, b).double(), state),
        bias=_difference(at_zero, a, b).item(),
        cap=lens.cap,
        bands=not lens.unembedding.linear if b is None else band(a) != band(b),
    )


def _difference(logits: Float[Tensor, "vocab"], a: int, b: int | None) -> Tensor:
    return logits[a] if b is None else logits[a] - logits[b]


@torch.no_grad()
def frozen_directions(
    model: MemoryModel, states: Float[Tensor, "n hidden"], gradients: Float[Tensor, "n width"]
) -> Float[Tensor, "n hidden"]:
    """Gradients with respect to the last output, with the scale of the final norm frozen, from those at the unembedding's input."""
    lens = model.lens("norm")
    assert isinstance(lens, NormLens)
    linear = lens.head_direction(states)
    actual = lens.head_input(states) - lens.head_input(torch.zeros_like(states[:1]))
    factors = _factors(linear, actual, limit=_limit(model), target="the logits")
    passed = _gradient(lambda vectors: (lens.head_direction(vectors).double() * gradients.double()).sum(), states)
    return factors[:, None] * passed


@torch.no_grad()
def value_directions(
    layer: FeedForward, *, directions: Float[Tensor, "n hidden"], scales: Float[Tensor, "n"]
) -> Float[Tensor, "n hidden"]:
    """The d with value · d = (the value as added to the residual) · direction, where `scales` are the layer's `post_scales`."""
    if layer.post is None:
        return directions.double() * layer.scale
    return scales[:, None] * _gradient(lambda rows: (to_residual(layer, rows).double() * directions).sum(), directions)


@torch.no_grad()
def post_scales(
    model: MemoryModel,
    layer: FeedForward,
    *,
    update: Float[Tensor, "n hidden"],
    into_post: Float[Tensor, "n hidden"] | None,
) -> Float[Tensor, "n"]:
    """The factors by which a layer's post-norm scales `to_residual` at some places of a run; 1 without a post-norm."""
    if into_post is None or layer.post is None:
        return torch.ones(len(update), dtype=torch.float64, device=update.device)
    without_bias = update.double() - layer.post(torch.zeros_like(into_post[:1])).double() * layer.scale
    linear = to_residual(layer, into_post)
    return _factors(linear, without_bias, limit=_limit(model), target="a feed-forward layer's norm")


def _gradient(function: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """The d of a linear function(v) = v · d, for vectors of the shape of `like`."""
    with torch.enable_grad():
        zero = torch.zeros(like.shape, device=like.device, requires_grad=True)
        (gradient,) = torch.autograd.grad(function(zero), zero)
    return gradient.double()


def _limit(model: MemoryModel) -> float:
    return max(_TOLERANCE, tolerance(model.dtype))


def _factors(
    linear: Float[Tensor, "n width"], actual: Float[Tensor, "n width"], *, limit: float, target: str
) -> Float[Tensor, "n"]:
    """For each row, the least-squares factor from the linear part to the actual one; raises if a pair is not proportional."""
    linear, actual = linear.double(), actual.double().to(linear.device)
    sizes = linear.square().sum(-1)
    factors = torch.where(sizes == 0, 0.0, (linear * actual).sum(-1) / sizes.clamp_min(torch.finfo(torch.float64).tiny))
    errors = (actual - factors[:, None] * linear).norm(dim=-1)
    if not ((errors <= limit * actual.norm(dim=-1)) | (sizes == 0)).all():
        raise LensError(
            f"Expected only a norm and a projection between the residual and {target}, found more (such as an activation), so no "
            "memory pushes the logits directly. Switch the memory off instead, and compare."
        )
    return factors
