"""The memories of all layers, ranked for one position of a text."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.errors import LensError
from ffscope.live.cancellation import Stop
from ffscope.live.frozen_norm import LinearLogit, logit_at, refuse_norms_between
from ffscope.live.interventions import Interventions
from ffscope.live.passed import Passed, Weights, promotes, run_at, weigh
from ffscope.live.requests import Asked, place, predicting
from ffscope.live.responses import By, Ranked, RankedMemories, Token
from ffscope.live.token_lookup import choose
from ffscope.memory_name import Memory
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import top
from ffscope.tokens import spelling


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
        note=why_not if logit is None else _note(logit),
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


def _note(logit: LinearLogit) -> str | None:
    if logit.bands:
        return "This model has an adaptive softmax; the pushes are on the token's score before it is normalised."
    if logit.cap is None:
        return None
    return f"This model caps its logits at ±{logit.cap:g}; the pushes are on the logit before the cap."
