"""What stands between the residual and the unembedding, and what it does to a direction: the linear part of each step."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ffscope.axes import Float
from ffscope.errors import LayoutError
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.hooks import copied, find
from ffscope.models.parts import activation, projection

Map = Callable[[Tensor], Tensor]


def steps(model: Any, top: Top) -> list[Map]:
    """The modules a state passes on its way to the unembedding; those a model does without are None in it."""
    found = []
    for path in top.steps:
        step = activation(model, path) if path.startswith("fn:") else _at_top(model, path)
        if step is not None:
            found.append(step)
    return found


def written(layer: FeedForward, values: Float[Tensor, "memory hidden"]) -> Float[Tensor, "memory hidden"]:
    """Values as they reach the residual: through the linear part of the post-norm, and scaled as the block scales y."""
    return (values if layer.post is None else linear_part(layer.post, values.shape[-1])(values)) * layer.scale


def linear_part(step: Map, width: int) -> Map:
    """What a step does to a direction: a projection's matrix, a norm's centring and gain; an activation is left out."""
    if isinstance(step, nn.Linear):
        matrix = projection(step)
        return lambda vector: vector.to(matrix.dtype) @ matrix
    return _norm_part(step, width) if isinstance(step, nn.Module) else _unchanged


@torch.no_grad()
def _norm_part(norm: nn.Module, width: int) -> Map:
    """Centring and gain, found by trying the norm: families store the gain as w or 1 + w, or not at all."""
    exact = copied(norm).float()
    weight = next(iter(exact.parameters()), torch.zeros(width))
    # Large, so that epsilon vanishes beside it; no element near the mean, so that the gain can be divided out.
    sizes = 1 + torch.rand(weight.shape[-1], generator=torch.Generator().manual_seed(0)).to(weight.device) / 2
    probe = 1e4 * sizes
    probe[::2] *= -1
    seen = exact(probe)
    nudged = probe.clone()
    nudged[0] *= 3
    if torch.equal(exact(nudged)[1:], seen[1:]):  # each element by itself: a gain or an activation
        return _gain_part(exact, probe)
    centred = torch.allclose(seen, exact(probe + 2e4), rtol=1e-3, atol=1e-3)
    direction = probe - probe.mean() if centred else probe
    gain = (seen - exact(torch.zeros_like(probe))) * direction.square().mean().sqrt() / direction

    def apply(vector: Tensor) -> Tensor:
        vector = vector.float()
        return (vector - vector.mean(-1, keepdim=True) if centred else vector) * gain

    return apply


def _gain_part(step: nn.Module, probe: Tensor) -> Map:
    """A gain (a layer scale, say) is linear; an activation is taken for no change."""
    gain = step(probe) / probe
    if torch.allclose(step(2 * probe), 2 * gain * probe) and torch.allclose(step(-probe), -gain * probe):
        return lambda vector: vector.float() * gain
    return _unchanged


def _unchanged(vector: Tensor) -> Tensor:
    return vector


def _at_top(model: Any, path: str) -> Any:
    """Most of the top is in the base model, a masked language model's head beside it."""
    for root in (model.base_model, model):
        try:
            return find(root, path)
        except AttributeError:
            continue
    raise LayoutError(f"Expected {path!r} at the top of {type(model).__name__}, and it is not there.")
