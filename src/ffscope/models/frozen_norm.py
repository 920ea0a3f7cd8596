"""Norms with their scale held as it is in one run: what they do to each term of a sum is then linear."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float
from ffscope.errors import LensError
from ffscope.models.feed_forward import FeedForward
from ffscope.models.lenses.norm import NormLens
from ffscope.models.linear_parts import written
from ffscope.models.memory_model import MemoryModel
from ffscope.models.tolerance import tolerance

_TOLERANCE = 1e-3  # relative, of a sum of pushes


class LinearLogit(NamedTuple):
    """A token's logit, or A's minus B's, at one state, and how it is made: total = state · along + bias."""

    logit: float  # as the model has it
    total: float  # without the cap, or without an adaptive softmax's normalisers
    along: Float[Tensor, "hidden"]
    bias: float
    cap: float | None
    bands: bool  # whether an adaptive softmax's normalisers are left out of the total


def refuse_norms_between(model: MemoryModel, layers: list[int]) -> None:
    """Raise where the residual is normalised on its way, so that what a layer writes does not reach the top as it is."""
    for index in layers:
        layer = model.layer(index)
        through = len(layer.residual_sites) == 1 and layer.residual_sites[0].side == "out"
        if str(layer.output_site) != "out:." or through:
            raise LensError(
                f"In this {model.model_type} a norm stands between the blocks, so no memory pushes the logits directly. "
                "Expected a model that normalises only what its layers read. Switch the memory off instead, and compare."
            )


@torch.no_grad()
def logit_at(model: MemoryModel, state: Float[Tensor, "hidden"], *, a: int, b: int | None = None) -> LinearLogit:
    """A's logit, minus B's where there is one, at the last output of a position, read with the final norm's scale held."""
    lens = model.lens("norm")
    assert isinstance(lens, NormLens)
    nothing, scores = lens.state_scores(torch.zeros_like(state)).double(), lens.state_scores(state).double()
    held = _factor(lens.update_scores(state), scores - nothing, limit=_limit(model), what="the logits")
    band = lens.unembedding.band
    return LinearLogit(
        logit=_minus(lens.logits(state).double(), a, b).item(),
        total=_minus(scores, a, b).item(),
        along=held * _direction(lambda vector: _minus(lens.update_scores(vector), a, b).double(), state),
        bias=_minus(nothing, a, b).item(),
        cap=lens.cap,
        bands=not lens.unembedding.linear if b is None else band(a) != band(b),
    )


def _minus(logits: Float[Tensor, "vocab"], a: int, b: int | None) -> Tensor:
    return logits[a] if b is None else logits[a] - logits[b]


@torch.no_grad()
def along_values(layer: FeedForward, *, along: Float[Tensor, "hidden"], scale: float) -> Float[Tensor, "hidden"]:
    """A direction of the residual as one for values as they lie in the layer, whose post-norm has that `post_scale`."""
    return scale * _direction(lambda value: written(layer, value[None])[0].double() @ along, along)


@torch.no_grad()
def post_scale(
    model: MemoryModel,
    layer: FeedForward,
    *,
    update: Float[Tensor, "hidden"],
    into_post: Float[Tensor, "hidden"] | None,
) -> float:
    """What a layer's post-norm divides by in this run, as a factor of `written`; 1 where there is no post-norm."""
    if into_post is None or layer.post is None:
        return 1.0
    given = update.double() - layer.post(torch.zeros_like(into_post)).double() * layer.scale
    linear = written(layer, into_post[None])[0]
    return _factor(linear, given, limit=_limit(model), what="a feed-forward layer's norm")


def _direction(reading: Callable[[Tensor], Tensor], like: Tensor) -> Tensor:
    """The d of a linear reading(v) = v · d, for vectors of that width."""
    with torch.enable_grad():
        at = torch.zeros(like.shape, device=like.device, requires_grad=True)
        (found,) = torch.autograd.grad(reading(at), at)
    return found.double()


def _limit(model: MemoryModel) -> float:
    return max(_TOLERANCE, tolerance(model.dtype))


def _factor(linear: Tensor, found: Tensor, *, limit: float, what: str) -> float:
    """What the linear part must be multiplied by to be what was found, by least squares; refused where nothing is."""
    linear, found = linear.double(), found.double()
    size = linear.square().sum()
    if size == 0:
        return 0.0
    factor = (linear * found).sum() / size
    if not (found - factor * linear).norm() <= limit * found.norm():
        raise LensError(
            f"Between the residual and {what} stands more than a norm and a projection (an activation, say), so no memory "
            "pushes the logits directly. Switch the memory off instead, and compare."
        )
    return factor.item()
