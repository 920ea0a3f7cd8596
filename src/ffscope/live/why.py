"""Which memories make a prediction: what each adds to a token's logit in one run, and what values promote without any.

The logits are the final norm and the unembedding of the sum of all that was written to the residual. With the norm's scale held
as it is in the run, they are linear in that sum, so each term of it has a share of its own, its push.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.analysis.trace import promoted
from ffscope.axes import Float
from ffscope.cancellation import Stop, raise_if_stopped
from ffscope.errors import InputError, LensError
from ffscope.live.interventions import Interventions, apply, place
from ffscope.live.prompt import Asked, finite, heeding, predicting
from ffscope.live.responses import (
    By,
    LayerPush,
    Promoter,
    Promoters,
    Push,
    Ranked,
    RankedMemories,
    Similar,
    Why,
)
from ffscope.memory_name import Memory
from ffscope.models.feed_forward import FeedForward
from ffscope.models.frozen_norm import LinearLogit, along_values, logit_at, post_scale, refuse_norms_between
from ffscope.models.hooks import tapping
from ffscope.models.lenses.base import Lens
from ffscope.models.linear_parts import written
from ffscope.models.memory_model import MemoryModel, States
from ffscope.models.ranking import probabilities_of, rank_of, ranked, top
from ffscope.models.token_lookup import choose
from ffscope.tokens import Token, spelling

_ROWS = 2**13  # values that are held in float32 at once


# --- one run at one position ---


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
        stack.enter_context(tapping(model.layer(layers[0]).block, "in", keeper(-1)))
        for layer in layers:
            if (post := model.layer(layer).post) is not None:
                stack.enter_context(tapping(post, "in", keeper(layer)))
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
        raise_if_stopped(stop)
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
        raise_if_stopped(stop)
        here = {memory.memory: number for memory, number in coefficients.items() if memory.layer == layer}
        spelt = promoted(model, model.lens("norm"), layer=layer, coefficients=here)
        tokens |= {Memory(layer, number): some for number, some in zip(here, spelt, strict=True)}
    return tokens


# --- why A rather than B ---


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
    first, second = choose(model, a, vocab=vocab), choose(model, b, vocab=vocab)
    if first.id == second.id:
        raise InputError(f"Both tokens are {first.token!r} (#{first.id}). Expected two different ones.")
    position = place(position, len(asked.ids))
    passed = run_at(model, asked, interventions=interventions, position=position, stop=stop)
    difference = logit_at(model, passed.states.output[-1][0], a=first.id, b=second.id)
    return Why(
        text=asked.text,
        ids=asked.ids,
        tokens=[spelling(model.tokenizer, token) for token in asked.ids],
        position=position,
        a=first,
        b=second,
        difference=difference.logit,
        total=difference.total,
        start=(passed.start.double() @ difference.along).item(),
        bias=difference.bias,
        layers=_layers(passed, difference),
        memories=_pushes(model, passed, difference, count, stop),
        note=_why_note(difference),
    )


def _why_note(difference: LinearLogit) -> str | None:
    if difference.bands:
        return (
            "The two tokens are in different bands of this model's adaptive softmax, and each band has a normaliser of its own; "
            "the pushes add up to the difference before them."
        )
    if difference.cap is None:
        return None
    return f"This model caps its logits at ±{difference.cap:g}; the pushes add up to the difference before the cap."


def _layers(passed: Passed, difference: LinearLogit) -> list[LayerPush]:
    pushes, before = [], passed.start.double()
    for layer, update, output in zip(passed.layers, passed.states.update, passed.states.output, strict=True):
        ff, after = update[0].double(), output[0].double()
        rest = after - before - ff
        pushes.append(LayerPush(layer, (ff @ difference.along).item(), (rest @ difference.along).item()))
        before = after
    return pushes


def _pushes(model: MemoryModel, passed: Passed, difference: LinearLogit, count: int, stop: Stop) -> list[Push]:
    """The strongest pushes over all layers, in either direction."""
    rows, _ = strongest(weigh(model, passed, along=difference.along, stop=stop), by="logit", count=count)
    tokens = promotes(model, {row.memory: row.coefficient for row in rows}, stop=stop)
    return [Push(str(row.memory), row.coefficient, row.push or 0.0, tokens[row.memory]) for row in rows]


# --- the memories of all layers, ranked ---


class Row(NamedTuple):
    """One memory, and the part that it has in its layer's sum of sizes."""

    memory: Memory
    coefficient: float
    size: float
    share: float
    push: float | None


def strongest(layers: Iterable[Weights], *, by: By, count: int) -> tuple[list[Row], float]:
    """The memories that push most, in either direction, or write most; and the sum of all sizes."""
    rows: list[Row] = []
    total = 0.0
    for weights in layers:
        total += weights.sizes.sum().item()
        rows += _strongest_of(weights, by, count)
        rows = sorted(rows, key=lambda row: (-_weight(row, by), row.memory))[:count]
    return rows, total


def _weight(row: Row, by: By) -> float:
    return row.size if by == "size" else abs(row.push or 0.0)


def _strongest_of(weights: Weights, by: By, count: int) -> list[Row]:
    order = weights.sizes if by == "size" or weights.pushes is None else weights.pushes.abs()
    of_layer = weights.sizes.sum().clamp_min(torch.finfo(torch.float64).tiny)
    return [
        Row(
            Memory(weights.layer, i),
            weights.coefficients[i].item(),
            weights.sizes[i].item(),
            (weights.sizes[i] / of_layer).item(),
            None if weights.pushes is None else weights.pushes[i].item(),
        )
        for i in order.topk(min(count, len(order))).indices.tolist()
    ]


@torch.no_grad()
def rank_memories(
    model: MemoryModel,
    asked: Asked,
    *,
    interventions: Interventions,
    position: int,
    target: str | None,
    by: By | None,
    count: int,
    stop: Stop,
) -> RankedMemories:
    """The memories that push one token's logit most, or write most to the residual, at a position of one run."""
    lens = model.lens("norm")
    position = place(position, len(asked.ids))
    passed = run_at(model, asked, interventions=interventions, position=position, stop=stop)
    token = _token(model, lens, target, passed.states.output[-1][0])
    logit, why_not = _logit(model, passed, token.id)
    if by == "logit" and logit is None:
        raise LensError(why_not or "")
    by = by or ("size" if logit is None else "logit")
    weights = weigh(model, passed, along=None if logit is None else logit.along, stop=stop)
    rows, total = strongest(weights, by=by, count=count)
    tokens = promotes(model, {row.memory: row.coefficient for row in rows}, stop=stop)
    return RankedMemories(
        text=asked.text,
        ids=asked.ids,
        tokens=[spelling(model.tokenizer, token) for token in asked.ids],
        position=position,
        by=by,
        target=token,
        logit=None if logit is None else logit.total,
        memories=[_ranked(row, total, tokens[row.memory]) for row in rows],
        note=why_not if logit is None else _rank_note(logit),
    )


def _token(model: MemoryModel, lens: Lens, target: str | None, output: Tensor) -> Token:
    """The token that was asked for, or else the one that the model predicts."""
    if target:
        return choose(model, target, vocab=lens.unembedding.vocab)
    predicted = int(top(lens.states(output[None], model.layers - 1))[0])
    return Token(f"#{predicted}", predicted, spelling(model.tokenizer, predicted))


def _logit(model: MemoryModel, passed: Passed, token: int) -> tuple[LinearLogit | None, str | None]:
    """The token's logit as a sum over memories; or why this model has no such sum."""
    try:
        refuse_norms_between(model, predicting(model))
        return logit_at(model, passed.states.output[-1][0], a=token), None
    except LensError as error:
        return None, str(error)


def _ranked(row: Row, total: float, tokens: list[str]) -> Ranked:
    return Ranked(
        memory=str(row.memory),
        coefficient=row.coefficient,
        size=row.size,
        share_of_layer=row.share,
        share_of_all=row.size / total if total else 0.0,
        push=row.push,
        promotes=tokens,
    )


def _rank_note(logit: LinearLogit) -> str | None:
    if logit.bands:
        return "This model has an adaptive softmax; the pushes are on the token's score before it is normalised."
    if logit.cap is None:
        return None
    return f"This model caps its logits at ±{logit.cap:g}; the pushes are on the logit before the cap."


# --- values, whatever the text ---


def value_rows(layer: FeedForward) -> Iterator[tuple[int, Float[Tensor, "_some hidden"]]]:
    """A layer's values in float32 at least, some at a time, each time with the number of the first."""
    for part in layer.parts:
        values = part.values()
        exact = torch.promote_types(values.dtype, torch.float32)
        for start in range(0, part.memories, _ROWS):
            yield part.offset + start, values[start : start + _ROWS].to(exact)


@torch.no_grad()
def similar_to(model: MemoryModel, memory: Memory, *, count: int, stop: Stop) -> list[Similar]:
    """The memories of any layer with the highest cosines, itself apart; none where its own value is nothing."""
    home = model.layer(memory.layer)
    own = written(home, home.values()[memory.memory, None])[0].float()
    if not own.any():
        return []
    own = own / own.norm()
    found: list[tuple[float, Memory]] = []
    for layer in range(model.layers):
        for first, rows in value_rows(model.layer(layer)):
            raise_if_stopped(stop)
            if rows.shape[1] == len(own):
                found += _closest(written(model.layer(layer), rows).float(), own, count + 1, Memory(layer, first))
        found = sorted(found, key=lambda one: (-one[0], one[1]))[: count + 1]
    return [Similar(str(other), cosine) for cosine, other in found if other != memory][:count]


def _closest(rows: Tensor, own: Tensor, count: int, first: Memory) -> list[tuple[float, Memory]]:
    sizes = rows.norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    highest = (rows @ own.to(rows.device) / sizes).clamp(-1, 1).topk(min(count, len(rows)))
    numbers = (highest.indices + first.memory).tolist()
    return [
        (cosine, Memory(first.layer, number)) for cosine, number in zip(highest.values.tolist(), numbers, strict=True)
    ]


@torch.no_grad()
def rank_promoters(
    model: MemoryModel, text: str, *, lens: str, layers: Sequence[int], count: int, stop: Stop
) -> Promoters:
    """The memories that raise a token's logit most above the mean of all tokens, with its rank and probability in each value.

    A logit needs one product with each value. Rank and probability need the whole distribution, so only those of the memories
    in the answer are read.
    """
    reading = model.lens(lens)
    vocab = reading.unembedding.vocab
    token = choose(model, text, vocab=vocab)
    logits: dict[Memory, float] = {}
    for layer in layers:
        raise_if_stopped(stop)
        logits |= _promote_most(reading, layer, token.id, count)
    best = sorted(logits, key=lambda memory: (-logits[memory], memory))[:count]
    places: dict[Memory, tuple[int, float]] = {}
    for layer in sorted({memory.layer for memory in best}):
        raise_if_stopped(stop)
        places |= _places(reading, [memory for memory in best if memory.layer == layer], token.id)
    rows = [Promoter(str(memory), logits[memory], *places[memory]) for memory in best]
    return Promoters(token, sum(model.memories[layer] for layer in layers), vocab, rows)


def _promote_most(lens: Lens, layer: int, token: int, count: int) -> dict[Memory, float]:
    """The memories of a layer that raise the token's logit most."""
    logits = finite(lens.token_logits(layer, token), f"the values of layer {layer}")
    highest = ranked(logits[None], count)[0]
    return {Memory(layer, int(number)): float(logits[number]) for number in highest}


def _places(lens: Lens, memories: list[Memory], token: int) -> dict[Memory, tuple[int, float]]:
    """The token's rank and probability in the values of memories of one layer."""
    ranks: list[int] = []
    probabilities: list[float] = []
    for logits in lens.value_chunks(memories[0].layer, torch.tensor([memory.memory for memory in memories])):
        tokens = torch.full((len(logits),), token, device=logits.device)
        ranks += rank_of(tokens, logits).tolist()
        probabilities += probabilities_of(tokens[:, None], logits)[:, 0].tolist()
    return dict(zip(memories, zip(ranks, probabilities, strict=True), strict=True))
