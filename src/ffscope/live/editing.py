"""Interventions, in force in a model."""

from contextlib import AbstractContextManager

from ffscope.live.answers import Applied
from ffscope.live.interventions import Interventions
from ffscope.memory import Memory
from ffscope.models.memory_model import MemoryModel, Trace


def apply(model: MemoryModel, interventions: Interventions) -> AbstractContextManager[None]:
    """Within the block, and in this thread, the interventions hold at every position."""
    return model.edit(
        zero=list(interventions.off),
        scale=dict(interventions.scale),
        set=dict(interventions.set),
    )


def known(model: MemoryModel, interventions: Interventions) -> Interventions:
    """Interventions whose memories are all there."""
    for memory, _, _ in interventions.changes():
        model.memory(memory)
    return interventions


def touched(interventions: Interventions) -> list[int]:
    """The layers that the interventions change."""
    return sorted({memory.layer for memory, _, _ in interventions.changes()})


def applied(interventions: Interventions, trace: Trace, *, position: int) -> list[Applied]:
    """Each intervention with the coefficient in a run without it, at a position below 0, which counts from the end."""
    return [
        Applied(str(memory), kind, number, _coefficient(trace, memory, position))
        for memory, kind, number in interventions.changes()
    ]


def _coefficient(trace: Trace, memory: Memory, position: int) -> float | None:
    here = trace.coefficients[trace.layers.index(memory.layer)][0]
    return here[position, memory.memory].item() if -position <= len(here) else None
