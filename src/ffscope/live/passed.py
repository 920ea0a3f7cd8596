"""What one run holds at one position, and what each memory writes there."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.analysis.trace import promoted
from ffscope.axes import Float
from ffscope.live.cancellation import Stop, heed
from ffscope.live.editing import apply
from ffscope.live.frozen_norm import along_values, post_scale
from ffscope.live.interventions import Interventions
from ffscope.live.requests import Asked, finite, heeding, predicting
from ffscope.live.similar import value_rows
from ffscope.memory_name import Memory
from ffscope.models.hooks import listening
from ffscope.models.linear_parts import written
from ffscope.models.memory_model import MemoryModel, States


class Passed(NamedTuple):
    """What a run held at one position, in the layers that predict."""

    layers: list[int]
    states: States
    start: Float[Tensor, "hidden"]  # what enters the first block
    into_post: dict[int, Float[Tensor, "hidden"]]  # by layer, what enters its post-norm, where it has one


class Weights(NamedTuple):
    """Every memory of a layer at one position: its coefficient, ‖coefficient × value‖ as written, and its push where asked for."""

    layer: int
    coefficients: Float[Tensor, "memory"]
    sizes: Float[Tensor, "memory"]
    pushes: Float[Tensor, "memory"] | None


def run_at(model: MemoryModel, asked: Asked, *, interventions: Interventions, position: int, stop: Stop) -> Passed:
    """One run with the interventions, as far as the last layer."""
    layers = predicting(model)
    kept: dict[int, Tensor] = {}  # by layer, what goes into its post-norm; -1 is what enters the first block

    def keeper(name: int) -> Callable[[Tensor], None]:
        def keep(tensor: Tensor) -> None:
            kept[name] = tensor.reshape(-1, tensor.shape[-1])[position].clone()

        return keep

    with heeding(model, stop), apply(model, interventions), ExitStack() as stack:
        stack.enter_context(listening(model.layer(layers[0]).block, "in", keeper(-1)))
        for layer in layers:
            if (post := model.layer(layer).post) is not None:
                stack.enter_context(listening(post, "in", keeper(layer)))
        at = torch.tensor([0], device=model.device), torch.tensor([position], device=model.device)
        states = model.states_at(asked.inputs, *at, layers=layers)
    for layer, coefficients, output in zip(layers, states.coefficients, states.output, strict=True):
        finite(coefficients, f"layer {layer}")
        finite(output, f"layer {layer}")
    return Passed(layers, states, kept.pop(-1), kept)


def weigh(
    model: MemoryModel, passed: Passed, *, along: Float[Tensor, "hidden"] | None, stop: Stop
) -> Iterator[Weights]:
    """Layer by layer, what every memory writes; its push is that along a direction of the residual."""
    for i, layer in enumerate(passed.layers):
        heed(stop)
        ff, coefficients = model.layer(layer), passed.states.coefficients[i][0].double()
        scale = post_scale(model, ff, update=passed.states.update[i][0], into_post=passed.into_post.get(layer))
        here = None if along is None else along_values(ff, along=along, scale=scale)
        sizes, pushes = torch.zeros_like(coefficients), torch.zeros_like(coefficients)
        for first, rows in value_rows(ff):
            some = slice(first, first + len(rows))
            sizes[some] = coefficients[some].abs() * written(ff, rows).norm(dim=-1) * abs(scale)
            if here is not None:
                pushes[some] = coefficients[some] * (rows @ here.to(rows)).double()
        finite(pushes, f"layer {layer}")
        yield Weights(layer, coefficients, finite(sizes, f"layer {layer}"), None if here is None else pushes)


def promotes(model: MemoryModel, coefficients: dict[Memory, float], *, stop: Stop) -> dict[Memory, list[str]]:
    """The tokens that memories of any layers promote with their coefficients."""
    tokens: dict[Memory, list[str]] = {}
    for layer in {memory.layer for memory in coefficients}:
        heed(stop)
        here = {memory.memory: number for memory, number in coefficients.items() if memory.layer == layer}
        spelt = promoted(model, model.lens("norm"), layer=layer, coefficients=here)
        tokens |= {Memory(layer, number): some for number, some in zip(here, spelt, strict=True)}
    return tokens
