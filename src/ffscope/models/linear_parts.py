"""The steps between the residual and the unembedding, and the linear part of each: what it does to a direction."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ffscope.axes import Float
from ffscope.errors import LayoutError
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.hooks import copy_module, find
from ffscope.models.parts import activation, projection

Map = Callable[[Tensor], Tensor]


def unembedding_steps(model: Any, top: Top) -> list[Map]:
    """The modules that a state passes through on its way to the unembedding, without those that are None in this model."""
    steps = []
    for path in top.steps:
        step = activation(model, path) if path.startswith("fn:") else _find_step(model, path)
        if step is not None:
            steps.append(step)
    return steps


def to_residual(layer: FeedForward, values: Float[Tensor, "memory hidden"]) -> Float[Tensor, "memory hidden"]:
    """Values as they are added to the residual: through the linear part of the post-norm, and scaled as the block scales y."""
    return (values if layer.post is None else linear_part(layer.post, values.shape[-1])(values)) * layer.scale


@torch.no_grad()
def norms_in_residual(layer: FeedForward, values: Float[Tensor, "memory hidden"]) -> Float[Tensor, "memory"]:
    """The norms of values as they are added to the residual, apart from the scale of a norm after the layer."""
    return to_residual(layer, values).float().norm(dim=-1)


def linear_part(step: Map, width: int) -> Map:
    """The linear part of a step: a projection's matrix, or a norm's centring and gain; an activation is skipped."""
    if isinstance(step, nn.Linear):
        matrix = projection(step)
        return lambda vector: vector.to(matrix) @ matrix
    return _norm_part(step, width) if isinstance(step, nn.Module) else _identity


@torch.no_grad()
def _norm_part(norm: nn.Module, width: int) -> Map:
    """Centring and gain, measured by running the norm: families store the gain as w or 1 + w, or not at all."""
    exact = copy_module(norm).float()
    weight = next(iter(exact.parameters()), torch.zeros(width))
    # Large, so that epsilon is negligible; no element near the mean, so that the gain can be divided out.
    sizes = 1 + torch.rand(weight.shape[-1], generator=torch.Generator().manual_seed(0)).to(weight.device) / 2
    probe = 1e4 * sizes
    probe[::2] *= -1
    normed = exact(probe)
    nudged = probe.clone()
    nudged[0] *= 3
    if torch.equal(exact(nudged)[1:], normed[1:]):  # element-wise: a gain or an activation
        return _gain_part(exact, probe)
    centred = torch.allclose(normed, exact(probe + 2e4), rtol=1e-3, atol=1e-3)
    direction = probe - probe.mean() if centred else probe
    gain = (normed - exact(torch.zeros_like(probe))) * direction.square().mean().sqrt() / direction

    def apply(vector: Tensor) -> Tensor:
        vector = vector.to(gain.device, torch.float32)
        return (vector - vector.mean(-1, keepdim=True) if centred else vector) * gain

    return apply


def _gain_part(step: nn.Module, probe: Tensor) -> Map:
    """A gain (such as a layer scale) is linear; an activation is replaced by the identity."""
    gain = step(probe) / probe
    if torch.allclose(step(2 * probe), 2 * gain * probe) and torch.allclose(step(-probe), -gain * probe):
        return lambda vector: vector.to(gain.device, torch.float32) * gain
    return _identity


def _identity(vector: Tensor) -> Tensor:
    return vector


def _find_step(model: Any, path: str) -> Any:
    """The module at a path from the base model, or from the model: a masked language model's head is outside the base model."""
    for root in (model.base_model, model):
        try:
            return find(root, path)
        except AttributeError:
            continue
    raise LayoutError(
        f"Expected a module {path!r} between the last block and the logits of {type(model).__name__}, found none."
    )
