"""Interventions, in force in a model."""

from contextlib import AbstractContextManager

from ffscope.live.interventions import Interventions, Target
from ffscope.live.requests import place
from ffscope.live.responses import Applied
from ffscope.models.memory_model import MemoryModel, Trace


def apply(model: MemoryModel, interventions: Interventions) -> AbstractContextManager[None]:
    """Within the block, and in this thread, the interventions hold."""
    return model.edit(
        zero=[str(target) for target in interventions.zero],
        scale={str(target): number for target, number in interventions.scale},
        set={str(target): number for target, number in interventions.set},
        positions=interventions.positions,
    )


def known(model: MemoryModel, interventions: Interventions, *, length: int) -> Interventions:
    """Interventions whose memories and layers the model has, and whose positions a text of that length has."""
    for target, _, _ in interventions.changes():
        model.layer(target.layer)
        if target.memory is not None:
            model.memory((target.layer, target.memory))
    placed(interventions, length=length)
    return interventions


def placed(interventions: Interventions, *, length: int) -> list[int] | None:
    """The positions counted from 0; None where the interventions hold at all of them."""
    if interventions.positions is None:
        return None
    return sorted({place(position, length) for position in interventions.positions})


def touched(interventions: Interventions) -> list[int]:
    """The layers that the interventions change."""
    return sorted({target.layer for target, _, _ in interventions.changes()})


def applied(interventions: Interventions, trace: Trace, *, position: int) -> list[Applied]:
    """Each intervention with the coefficient in a run without it, at a position below 0, which counts from the end."""
    return [
        Applied(str(target), kind, number, _coefficient(trace, target, position))
        for target, kind, number in interventions.changes()
    ]


def _coefficient(trace: Trace, target: Target, position: int) -> float | None:
    here = trace.coefficients[trace.layers.index(target.layer)][0]
    if target.memory is None or -position > len(here):
        return None
    return here[position, target.memory].item()
