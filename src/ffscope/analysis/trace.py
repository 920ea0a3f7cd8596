"""Traces the prediction at one position through the layers, with the memories that contribute most to each update."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ffscope.cases import case
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.models.lenses.base import Lens
from ffscope.models.linear_parts import to_residual
from ffscope.models.memory_model import MemoryModel, Trace
from ffscope.tokens import spelling
from ffscope.trace_types import Contribution, Prediction, PredictionTrace, Step


def trace_prediction(
    model: MemoryModel,
    text: str,
    *,
    position: int = -1,
    layers: list[int] | None = None,
    memories: int = 3,
    lens: str = "norm",
    study: Path | None = None,
    bos: bool = True,
) -> PredictionTrace:
    """The prediction after one token of a text, by default the last, layer by layer. A learned lens is read from a study."""
    model_lens = model.lens(lens, study)
    trace = model.trace(text, bos=bos, layers=layers)
    length = trace.ids.shape[1]
    if not -length <= position < length:
        raise InputError(
            f"There is no position {position}: the text has {length} tokens, including BOS. Expected {-length} to {length - 1}."
        )
    assert trace.logits is not None  # a model with a lens has logits
    return PredictionTrace(
        model=model.source or model.model_type,
        lens=lens,
        text=text,
        ids=trace.ids[0].tolist(),
        tokens=[spelling(model.tokenizer, token) for token in trace.ids[0].tolist()],
        position=position % length,
        steps=list(steps(model, trace, position=position, memories=memories, lens=model_lens)),
        prediction=_best(model, trace.logits[0, position], 5),
    )


def steps(model: MemoryModel, trace: Trace, *, position: int, memories: int, lens: Lens) -> Iterator[Step]:
    """The traced layers at one position of a trace's first text, each with the memories that contribute most."""
    for i in range(len(trace.layers)):
        yield _step(model, lens, trace, i, position, memories)


@torch.no_grad()
def promoted(model: MemoryModel, lens: Lens, *, layer: int, coefficients: dict[int, float]) -> list[list[str]]:
    """The three tokens that each of these memories promotes most, given the sign of its coefficient."""
    values = lens.value_updates(layer, list(coefficients))
    signs = torch.tensor([-1 if coefficient < 0 else 1 for coefficient in coefficients.values()]).to(values)
    highest = lens.updates(values * signs[:, None], layer).topk(3).indices.tolist()
    return [[spelling(model.tokenizer, token) for token in row] for row in highest]


@torch.no_grad()
def _step(model: MemoryModel, lens: Lens, trace: Trace, i: int, position: int, memories: int) -> Step:
    """The i-th traced layer."""
    residual, update, output = (states[i][0, position] for states in (trace.residual, trace.update, trace.output))
    layer = trace.layers[i]
    before = _best(model, lens.states(residual, layer), 1)[0]
    after = _best(model, lens.states(output, layer, "output"), 1)[0]
    ff = _best(model, lens.updates(update, layer), 1)[0]
    coefficients = trace.coefficients[i][0, position].float()
    return Step(
        layer=layer,
        before=before,
        ff=ff,
        after=after,
        case=case(before.id, ff.id, after.id),
        active=int((coefficients > 0).sum()),
        memories=_contributions(model, lens, layer, coefficients, memories),
    )


def _contributions(model: MemoryModel, lens: Lens, layer: int, coefficients: Tensor, count: int) -> list[Contribution]:
    ff = model.layer(layer)
    sizes = coefficients.abs() * to_residual(ff, ff.values()).float().norm(dim=-1)
    total = sizes.sum().clamp_min(torch.finfo(torch.float32).tiny)
    chosen = {index: coefficients[index].item() for index in sizes.topk(min(count, ff.memories)).indices.tolist()}
    tokens = promoted(model, lens, layer=layer, coefficients=chosen)
    return [
        Contribution(str(Memory(layer, memory)), coefficient, (sizes[memory] / total).item(), promotes)
        for (memory, coefficient), promotes in zip(chosen.items(), tokens, strict=True)
    ]


def _best(model: MemoryModel, logits: Tensor, count: int) -> list[Prediction]:
    """The highest-ranked tokens, by logit: the softmax may round different logits to equal probabilities."""
    probabilities: Any = logits.float().softmax(-1)
    return [
        Prediction(spelling(model.tokenizer, token), token, probabilities[token].item())
        for token in logits.topk(count).indices.tolist()
    ]
