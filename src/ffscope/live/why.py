"""Which memories determine a prediction: what each adds to a token's logit in one run, and what values promote in any text.

The logits are the final norm and the unembedding applied to the sum of everything added to the residual. With the scale of the norm
frozen at its value in the run they are linear in that sum, so each term makes its own contribution, its push.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.analysis.trace import promoted
from ffscope.axes import Float
from ffscope.cancellation import Stop, raise_if_stopped
from ffscope.errors import InputError
from ffscope.live.interventions import Interventions, apply, position_from_start
from ffscope.live.prompt import Prompt, finite, stoppable
from ffscope.live.responses import (
    By,
    LayerPush,
    Promoter,
    Promoters,
    Push,
    Similar,
    Why,
)
from ffscope.memory_name import Memory
from ffscope.models.feed_forward import FeedForward
from ffscope.models.frozen_norm import LinearLogit, logit_at, post_scales, refuse_norms_between_blocks, value_directions
from ffscope.models.hooks import tap
from ffscope.models.lenses.base import Lens
from ffscope.models.linear_parts import to_residual
from ffscope.models.memory_model import MemoryModel, States
from ffscope.models.ranking import probabilities_of, rank_of, ranked
from ffscope.models.token_lookup import find_token
from ffscope.tokens import spelling

_ROWS = 2**13  # values converted to float32 at once


# --- one run at one position ---


class PositionRun(NamedTuple):
    """The tensors of a run at one position, in some layers."""

    layers: list[int]
    states: States
    start: Float[Tensor, "hidden"]  # the input of the first block
    into_post: dict[int, Float[Tensor, "hidden"]]  # by layer, the input of its post-norm, if it has one


class Contributions(NamedTuple):
    """For every memory of a layer at one position: coefficient, ‖coefficient × value‖ in the residual, optionally push and effect.

    The coefficients are None if the layer's stack has no such position; nothing is written there.
    """

    layer: int
    coefficients: Float[Tensor, "memory"] | None
    sizes: Float[Tensor, "memory"]
    pushes: Float[Tensor, "memory"] | None
    effects: Float[Tensor, "memory"] | None = None


def run_at(
    model: MemoryModel,
    prompt: Prompt,
    *,
    interventions: Interventions,
    position: int,
    stop: Stop,
    layers: list[int] | None = None,
) -> PositionRun:
    """One run with the interventions, up to the last layer; by default the predicting layers are kept."""
    layers = list(model.predicting_layers) if layers is None else layers
    position -= len(prompt.ids)  # counted from the end, where the text is in both stacks of an encoder–decoder
    inputs: dict[int, Tensor] = {}  # by layer, the input of its post-norm; -1 is the input of the first block

    def keeper(name: int) -> Callable[[Tensor], None]:
        def keep(tensor: Tensor) -> None:
            inputs[name] = tensor.reshape(-1, tensor.shape[-1])[position].clone()

        return keep

    with stoppable(model, stop), apply(model, interventions), ExitStack() as stack:
        stack.enter_context(tap(model.layer(layers[0]).block, "in", keeper(-1)))
        for layer in layers:
            if (post := model.layer(layer).post) is not None:
                stack.enter_context(tap(post, "in", keeper(layer)))
        at = torch.tensor([0], device=model.device), torch.tensor([position], device=model.device)
        states = model.states_at(prompt.inputs, *at, layers=layers)
    for layer, coefficients, output in zip(layers, states.coefficients, states.output, strict=True):
        finite(coefficients, f"layer {layer}")
        finite(output, f"layer {layer}")
    return PositionRun(layers, states, inputs.pop(-1), inputs)


def contributions(
    model: MemoryModel, run: PositionRun, *, direction: Float[Tensor, "hidden"] | None, stop: Stop
) -> Iterator[Contributions]:
    """Layer by layer, what every memory adds to the residual; its push is the component along a direction.

    An encoder's memories have no push: they reach the logits through attention alone.
    """
    predicting = list(model.predicting_layers)
    for i, layer in enumerate(run.layers):
        raise_if_stopped(stop)
        ff, coefficients = model.layer(layer), run.states.coefficients[i][0].double()
        into_post = run.into_post.get(layer)
        scales = post_scales(
            model, ff, update=run.states.update[i], into_post=None if into_post is None else into_post[None]
        )
        along = None
        if direction is not None and layer in predicting:
            along = value_directions(ff, directions=direction[None], scales=scales)[0]
        sizes, pushes = torch.zeros_like(coefficients), torch.zeros_like(coefficients)
        for first, rows in value_rows(ff):
            chunk = slice(first, first + len(rows))
            sizes[chunk] = coefficients[chunk].abs() * to_residual(ff, rows).norm(dim=-1) * scales.abs()
            if along is not None:
                pushes[chunk] = coefficients[chunk] * (rows @ along.to(rows)).double()
        finite(pushes, f"layer {layer}")
        yield Contributions(layer, coefficients, finite(sizes, f"layer {layer}"), None if along is None else pushes)


def promoted_tokens(model: MemoryModel, rows: Iterable["Row"], *, stop: Stop) -> dict[Memory, list[str]]:
    """The tokens that coefficient × value of each memory promotes; memories of any layers."""
    tokens: dict[Memory, list[str]] = {}
    coefficients = {row.memory: row.coefficient or 0.0 for row in rows}
    for layer in {memory.layer for memory in coefficients}:
        raise_if_stopped(stop)
        in_layer = {memory.memory: number for memory, number in coefficients.items() if memory.layer == layer}
        spellings = promoted(model, model.lens("norm"), layer=layer, coefficients=in_layer)
        tokens |= {Memory(layer, number): row for number, row in zip(in_layer, spellings, strict=True)}
    return tokens


# --- why A rather than B ---


@torch.no_grad()
def explain(
    model: MemoryModel,
    prompt: Prompt,
    *,
    interventions: Interventions,
    a: str,
    b: str,
    position: int,
    count: int,
    stop: Stop,
) -> Why:
    """The difference of two tokens' logits at a position of one run, decomposed into layers and memories."""
    vocab = model.lens("norm").unembedding.vocab
    refuse_norms_between_blocks(model, list(model.predicting_layers))
    first, second = find_token(model, a, vocab=vocab), find_token(model, b, vocab=vocab)
    if first.id == second.id:
        raise InputError(f"Both tokens are {first.token!r} (#{first.id}). Expected two different ones.")
    position = position_from_start(position, len(prompt.ids))
    run = run_at(model, prompt, interventions=interventions, position=position, stop=stop)
    difference = logit_at(model, run.states.output[-1][0], a=first.id, b=second.id)
    return Why(
        text=prompt.text,
        ids=prompt.ids,
        tokens=[spelling(model.tokenizer, token) for token in prompt.ids],
        position=position,
        a=first,
        b=second,
        difference=difference.logit,
        total=difference.total,
        start=(run.start.double() @ difference.direction).item(),
        bias=difference.bias,
        layers=_layers(run, difference),
        memories=_pushes(model, run, difference, count, stop),
        note=_why_note(difference),
    )


def _why_note(difference: LinearLogit) -> str | None:
    if difference.bands:
        return (
            "The two tokens are in different bands of this model's adaptive softmax, and each band has its own normaliser; "
            "the pushes add up to the difference before normalisation."
        )
    if difference.cap is None:
        return None
    return f"This model caps its logits at ±{difference.cap:g}; the pushes add up to the difference before the cap."


def _layers(run: PositionRun, difference: LinearLogit) -> list[LayerPush]:
    pushes, before = [], run.start.double()
    for layer, update, output in zip(run.layers, run.states.update, run.states.output, strict=True):
        ff, after = update[0].double(), output[0].double()
        rest = after - before - ff
        direction = difference.direction
        pushes.append(LayerPush(layer, (ff @ direction).item(), (rest @ direction).item()))
        before = after
    return pushes


def _pushes(model: MemoryModel, run: PositionRun, difference: LinearLogit, count: int, stop: Stop) -> list[Push]:
    """The strongest pushes over all layers, in either direction."""
    layers = contributions(model, run, direction=difference.direction, stop=stop)
    rows, _ = strongest_memories(layers, by="logit", count=count)
    tokens = promoted_tokens(model, rows, stop=stop)
    return [Push(str(row.memory), row.coefficient or 0.0, row.push or 0.0, tokens[row.memory]) for row in rows]


# --- the memories of all layers, ranked ---


class Row(NamedTuple):
    """One memory, with its share of the sum of sizes in its layer."""

    memory: Memory
    coefficient: float | None
    size: float
    share: float
    push: float | None
    effect: float | None


def strongest_memories(layers: Iterable[Contributions], *, by: By, count: int) -> tuple[list[Row], float]:
    """The memories that push most or have the largest effect, in either direction, or write most; and the sum of all sizes."""
    rows: list[Row] = []
    total = 0.0
    for layer in layers:
        total += layer.sizes.sum().item()
        rows += _strongest_in_layer(layer, by, count)
        rows = sorted(rows, key=lambda row: (-_strength(row, by), row.memory))[:count]
    return rows, total


def _strength(row: Row, by: By) -> float:
    return abs({"logit": row.push, "size": row.size, "effect": row.effect}[by] or 0.0)


def _strongest_in_layer(layer: Contributions, by: By, count: int) -> list[Row]:
    strengths = {"logit": layer.pushes, "size": layer.sizes, "effect": layer.effects}[by]
    order = torch.zeros_like(layer.sizes) if strengths is None else strengths.abs()
    total = layer.sizes.sum().clamp_min(torch.finfo(torch.float64).tiny)
    return [
        Row(
            Memory(layer.layer, i),
            None if layer.coefficients is None else layer.coefficients[i].item(),
            layer.sizes[i].item(),
            (layer.sizes[i] / total).item(),
            None if layer.pushes is None else layer.pushes[i].item(),
            None if layer.effects is None else layer.effects[i].item(),
        )
        for i in order.topk(min(count, len(order))).indices.tolist()
    ]


# --- values, independent of any text ---


def value_rows(layer: FeedForward) -> Iterator[tuple[int, Float[Tensor, "_some hidden"]]]:
    """A layer's values in at least float32, in chunks, each with the index of its first value."""
    for part in layer.parts:
        values = part.values()
        exact = torch.promote_types(values.dtype, torch.float32)
        for start in range(0, part.memories, _ROWS):
            yield part.offset + start, values[start : start + _ROWS].to(exact)


@torch.no_grad()
def similar_to(model: MemoryModel, memory: Memory, *, count: int, stop: Stop) -> list[Similar]:
    """The other memories of any layer with the highest cosines; none if the memory's own value is zero."""
    own_layer = model.layer(memory.layer)
    own = to_residual(own_layer, own_layer.values()[memory.memory, None])[0].float()
    if not own.any():
        return []
    own = own / own.norm()
    closest: list[tuple[float, Memory]] = []
    for layer in range(model.layers):
        for first, rows in value_rows(model.layer(layer)):
            raise_if_stopped(stop)
            if rows.shape[1] == len(own):
                values = to_residual(model.layer(layer), rows).float()
                closest += _closest(values, own, count + 1, Memory(layer, first))
        closest = sorted(closest, key=lambda pair: (-pair[0], pair[1]))[: count + 1]
    return [Similar(str(other), cosine) for cosine, other in closest if other != memory][:count]


def _closest(rows: Tensor, own: Tensor, count: int, first: Memory) -> list[tuple[float, Memory]]:
    sizes = rows.norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    highest = (rows @ own.to(rows.device) / sizes).clamp(-1, 1).topk(min(count, len(rows)))
    numbers = (highest.indices + first.memory).tolist()
    return [
        (cosine, Memory(first.layer, number)) for cosine, number in zip(highest.values.tolist(), numbers, strict=True)
    ]


@torch.no_grad()
def rank_promoters(
    model: MemoryModel, text: str, *, lens: Lens, layers: Sequence[int], count: int, stop: Stop
) -> Promoters:
    """The memories that raise a token's logit most above the mean of all tokens, with its rank and probability in each value.

    A logit takes one product per value. Rank and probability need the whole distribution, so they are computed only for the
    memories in the result.
    """
    vocab = lens.unembedding.vocab
    token = find_token(model, text, vocab=vocab)
    logits: dict[Memory, float] = {}
    for layer in layers:
        raise_if_stopped(stop)
        logits |= _top_promoters(lens, layer, token.id, count)
    best = sorted(logits, key=lambda memory: (-logits[memory], memory))[:count]
    ranks: dict[Memory, tuple[int, float]] = {}
    for layer in sorted({memory.layer for memory in best}):
        raise_if_stopped(stop)
        ranks |= _ranks_and_probabilities(lens, [memory for memory in best if memory.layer == layer], token.id)
    rows = [Promoter(str(memory), logits[memory], *ranks[memory]) for memory in best]
    return Promoters(token, sum(model.memories[layer] for layer in layers), vocab, rows)


def _top_promoters(lens: Lens, layer: int, token: int, count: int) -> dict[Memory, float]:
    """The memories of a layer that raise the token's logit most."""
    logits = finite(lens.token_logits(layer, token), f"the values of layer {layer}")
    highest = ranked(logits[None], count)[0]
    return {Memory(layer, int(number)): float(logits[number]) for number in highest}


def _ranks_and_probabilities(lens: Lens, memories: list[Memory], token: int) -> dict[Memory, tuple[int, float]]:
    """The rank and probability of the token in the values of some memories of one layer."""
    ranks: list[int] = []
    probabilities: list[float] = []
    for logits in lens.value_chunks(memories[0].layer, torch.tensor([memory.memory for memory in memories])):
        tokens = torch.full((len(logits),), token, device=logits.device)
        ranks += rank_of(tokens, logits).tolist()
        probabilities += probabilities_of(tokens[:, None], logits)[:, 0].tolist()
    return dict(zip(memories, zip(ranks, probabilities, strict=True), strict=True))
