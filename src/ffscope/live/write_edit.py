"""The command that writes interventions into a model's weights, or why they cannot be written."""

from collections.abc import Iterator

from ffscope.edit_command import edit_command
from ffscope.live.interventions import Interventions, Target
from ffscope.live.responses import WriteEdit
from ffscope.models.memory_model import MemoryModel
from ffscope.models.slices import Sliced, sliced_parts


def how_to_write(model: MemoryModel, interventions: Interventions) -> WriteEdit | None:
    """How to write the interventions into weights; None if there are none."""
    if not interventions.any:
        return None
    if interventions.positions is not None:
        why = "Weights act at every token, and these interventions at some positions only. Apply them at every token first."
        return WriteEdit(None, why)
    for target, _ in interventions.set:
        if any(part.bias is None for part in _parts(model, target)):
            why = (
                f"{target} is set to a number, which can be written into the bias of the layer's output projection alone; this one "
                "has none that is the same for every token. Switch it off or scale it instead."
            )
            return WriteEdit(None, why)
    return WriteEdit(
        edit_command(
            model.source,
            zero=map(str, interventions.zero),
            scale={str(target): number for target, number in interventions.scale},
            set={str(target): number for target, number in interventions.set},
        ),
        None,
    )


def _parts(model: MemoryModel, target: Target) -> Iterator[Sliced]:
    """The parts of the layer that have the memory, or all of them."""
    for sliced in sliced_parts(model):
        start, end = sliced.part.offset, sliced.part.offset + sliced.part.memories
        if sliced.layer == target.layer and (target.memory is None or start <= target.memory < end):
            yield sliced
