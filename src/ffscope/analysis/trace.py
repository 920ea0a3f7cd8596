"""What each layer does to the prediction at one position: before → the memories that contribute most → after."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ffscope.cases import Case, case
from ffscope.errors import InputError
from ffscope.memory import Memory
from ffscope.models.lens import Lens, written
from ffscope.models.memory_model import MemoryModel, Trace
from ffscope.tokens import spelling


@dataclass(frozen=True)
class Prediction:
    """A token with its probability under the lens."""

    token: str
    id: int
    probability: float


@dataclass(frozen=True)
class Contribution:
    """A memory with its coefficient, its share of the layer's Σ |coefficient| × ‖value‖, and the tokens it promotes here.

    With a negative coefficient a memory promotes what its value suppresses.
    """

    memory: str
    coefficient: float
    share: float
    promotes: list[str]


@dataclass(frozen=True)
class Step:
    """One layer's part: what the residual, the feed-forward layer and their sum predict; how many memories are active."""

    layer: int
    before: Prediction
    ff: Prediction
    after: Prediction
    case: Case
    active: int
    memories: list[Contribution]


@dataclass(frozen=True)
class Story:
    """The prediction at one position, layer by layer."""

    model: str
    lens: str
    text: str
    ids: list[int]
    tokens: list[str]
    position: int
    steps: list[Step]
    prediction: list[Prediction]


def tell(
    model: MemoryModel,
    text: str,
    *,
    position: int = -1,
    layers: list[int] | None = None,
    memories: int = 3,
    lens: str = "norm",
    bos: bool = True,
) -> Story:
    """How the prediction after one token of a text comes about; by default after the last."""
    reading = model.lens(lens)
    trace = model.trace(text, bos=bos, layers=layers)
    length = trace.ids.shape[1]
    if not -length <= position < length:
        raise InputError(
            f"There is no position {position}: the text has {length} tokens, BOS included, counted from 0."
        )
    assert trace.logits is not None  # a model with a lens has logits
    return Story(
        model=model.source or model.model_type,
        lens=lens,
        text=text,
        ids=trace.ids[0].tolist(),
        tokens=[spelling(model.tokenizer, token) for token in trace.ids[0].tolist()],
        position=position % length,
        steps=[_step(model, reading, trace, i, position, memories) for i in range(len(trace.layers))],
        prediction=_best(model, trace.logits[0, position], 5),
    )


@torch.no_grad()
def _step(model: MemoryModel, lens: Lens, trace: Trace, i: int, position: int, memories: int) -> Step:
    """The i-th traced layer's part."""
    residual, update, output = (states[i][0, position] for states in (trace.residual, trace.update, trace.output))
    before, after = (_best(model, lens.states(state), 1)[0] for state in (residual, output))
    ff = _best(model, lens.updates(update), 1)[0]
    coefficients = trace.coefficients[i][0, position].float()
    return Step(
        layer=trace.layers[i],
        before=before,
        ff=ff,
        after=after,
        case=case(before.id, ff.id, after.id),
        active=int((coefficients > 0).sum()),
        memories=_contributions(model, lens, trace.layers[i], coefficients, memories),
    )


def _contributions(model: MemoryModel, lens: Lens, layer: int, coefficients: Tensor, count: int) -> list[Contribution]:
    ff = model.layer(layer)
    sizes = coefficients.abs() * written(ff, ff.values()).float().norm(dim=-1)
    total = sizes.sum().clamp_min(torch.finfo(torch.float32).tiny)
    found = []
    for memory in sizes.topk(min(count, ff.memories)).indices.tolist():
        promoted = lens.values(layer, [memory])[0] * coefficients[memory].sign()
        found.append(
            Contribution(
                memory=str(Memory(layer, memory)),
                coefficient=coefficients[memory].item(),
                share=(sizes[memory] / total).item(),
                promotes=[spelling(model.tokenizer, token) for token in promoted.topk(3).indices.tolist()],
            )
        )
    return found


def _best(model: MemoryModel, logits: Tensor, count: int) -> list[Prediction]:
    """The highest-ranked tokens. Ranked on logits: rounding in the softmax makes ties that are none."""
    probabilities: Any = logits.float().softmax(-1)
    return [
        Prediction(spelling(model.tokenizer, token), token, probabilities[token].item())
        for token in logits.topk(count).indices.tolist()
    ]
