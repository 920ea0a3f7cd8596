"""Why one token rather than another: what each memory, and each layer, adds to the difference of their logits.

The logits are the final norm and the unembedding of the sum of all that was written to the residual. With the norm's scale held
as it is in the run, they are linear in that sum, so each term of it has a share of its own, its push.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.analysis.trace import promoted
from ffscope.axes import Float
from ffscope.errors import InputError
from ffscope.live.answers import LayerPush, Push, Why
from ffscope.live.asking import Asked, finite, heeding, place, predicting
from ffscope.live.choosing import choose
from ffscope.live.editing import apply
from ffscope.live.interventions import Interventions
from ffscope.live.linear import Difference, along_values, difference_at, refuse_norms_between
from ffscope.live.similar import value_rows
from ffscope.live.stopping import Stop, heed
from ffscope.memory import Memory
from ffscope.models.hooks import listening
from ffscope.models.memory_model import MemoryModel, States
from ffscope.tokens import spelling


class _Passed(NamedTuple):
    """What a run held at one position."""

    layers: list[int]
    states: States
    start: Float[Tensor, "hidden"]
    into_post: dict[int, Float[Tensor, "hidden"]]


class _Pushing(NamedTuple):
    memory: Memory
    coefficient: float
    push: float


@torch.no_grad()
def explain(
    model: MemoryModel,
    asked: Asked,
    *,
    interventions: Interventions,
    a: str,
    b: str,
    position: int,
    count: int,
    stop: Stop,
) -> Why:
    """The difference of two tokens' logits at a position of one run, taken apart."""
    vocab = model.lens("norm").unembedding.vocab
    refuse_norms_between(model, predicting(model))
    one, other = choose(model, a, vocab=vocab), choose(model, b, vocab=vocab)
    if one.id == other.id:
        raise InputError(f"Both tokens are {one.token!r} (#{one.id}). Expected two different ones.")
    position = place(position, len(asked.ids))
    passed = _run(model, asked, interventions, position, stop)
    difference = difference_at(model, passed.states.output[-1][0], a=one.id, b=other.id)
    return Why(
        text=asked.text,
        ids=asked.ids,
        tokens=[spelling(model.tokenizer, token) for token in asked.ids],
        position=position,
        a=one,
        b=other,
        difference=difference.logits,
        total=difference.total,
        start=(passed.start.double() @ difference.along).item(),
        bias=difference.bias,
        layers=_layers(passed, difference),
        memories=_memories(model, passed, difference, count, stop),
        note=_note(difference),
    )


def _note(difference: Difference) -> str | None:
    if difference.bands:
        return (
            "The two tokens are in different bands of this model's adaptive softmax, and each band has a normaliser of its own; "
            "the pushes add up to the difference before them."
        )
    if difference.cap is None:
        return None
    return f"This model caps its logits at ±{difference.cap:g}; the pushes add up to the difference before the cap."


def _run(model: MemoryModel, asked: Asked, interventions: Interventions, position: int, stop: Stop) -> _Passed:
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
    return _Passed(layers, states, kept.pop(-1), kept)


def _layers(passed: _Passed, difference: Difference) -> list[LayerPush]:
    found, before = [], passed.start.double()
    for layer, update, output in zip(passed.layers, passed.states.update, passed.states.output, strict=True):
        ff, after = update[0].double(), output[0].double()
        rest = after - before - ff
        found.append(LayerPush(layer, (ff @ difference.along).item(), (rest @ difference.along).item()))
        before = after
    return found


def _memories(model: MemoryModel, passed: _Passed, difference: Difference, count: int, stop: Stop) -> list[Push]:
    """The strongest pushes over all layers, in either direction."""
    found: list[_Pushing] = []
    for i, layer in enumerate(passed.layers):
        heed(stop)
        coefficients = passed.states.coefficients[i][0]
        along = along_values(
            model,
            model.layer(layer),
            along=difference.along,
            update=passed.states.update[i][0],
            into_post=passed.into_post.get(layer),
        )
        found += _strongest(model, layer, coefficients, along, count)
        found = sorted(found, key=lambda one: (-abs(one.push), one.memory))[:count]
    promotes: dict[Memory, list[str]] = {}
    for layer in {one.memory.layer for one in found}:
        heed(stop)
        here = {one.memory.memory: one.coefficient for one in found if one.memory.layer == layer}
        tokens = promoted(model, model.lens("norm"), layer=layer, coefficients=here)
        promotes |= {Memory(layer, memory): some for memory, some in zip(here, tokens, strict=True)}
    return [Push(str(one.memory), one.coefficient, one.push, promotes[one.memory]) for one in found]


def _strongest(model: MemoryModel, layer: int, coefficients: Tensor, along: Tensor, count: int) -> list[_Pushing]:
    pushes = torch.zeros_like(coefficients, dtype=torch.float64)
    for first, rows in value_rows(model.layer(layer)):
        some = slice(first, first + len(rows))
        pushes[some] = coefficients[some].double() * (rows @ along.to(rows)).double()
    chosen = finite(pushes, f"layer {layer}").abs().topk(min(count, len(pushes))).indices.tolist()
    return [_Pushing(Memory(layer, i), coefficients[i].item(), pushes[i].item()) for i in chosen]
