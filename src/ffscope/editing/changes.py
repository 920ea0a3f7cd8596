"""Which memories an edit changes and how, and the same in a model's weights."""

from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.editing.record import EditedMemory, EditedWeight, Original
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.models.edits import Change, Edit, Names, Numbers, parse_changes
from ffscope.models.memory_model import MemoryModel
from ffscope.models.rewriting import Weights, add_to_bias, scale_values
from ffscope.models.slices import Slice, Sliced, sliced_parts

Changes = dict[int, dict[int, Change]]
"""By layer, then by memory."""


def parse(model: MemoryModel, zero: Names, scale: Numbers, set: Numbers) -> Changes:
    """The changes of `MemoryModel.edit`, checked; raises if there are none."""
    named = parse_changes(zero, {} if scale is None else scale, {} if set is None else set)
    edit = Edit(((memory, change) for name, change in named for memory in model.memories_named(name)), None)
    if not edit.by_layer:
        raise InputError(
            "Expected memories to change, found none. Name some with --zero L12.345, --scale L3.4=2 or --set L3.4=1.5."
        )
    return edit.by_layer


def listed(changes: Changes) -> tuple[EditedMemory, ...]:
    """The changed memories, in order."""
    return tuple(
        EditedMemory(str(Memory(layer, memory)), change.factor, change.addend)
        for layer, of_layer in sorted(changes.items())
        for memory, change in sorted(of_layer.items())
    )


def live(model: MemoryModel, changes: Changes) -> AbstractContextManager[None]:
    """Makes the same edit live, within a block."""
    rows = [(Memory(layer, memory), change) for layer, row in changes.items() for memory, change in row.items()]
    scale = {memory: change.factor for memory, change in rows if not change.addend and change.factor}
    fixed = {memory: change.addend for memory, change in rows if memory not in scale}
    return model.edit(scale=scale, set=fixed)


def as_if_all_fired(model: MemoryModel, changes: Changes, *, written: bool) -> AbstractContextManager[None]:
    """Sets the coefficients of the changed memories to 1, and in the model that is not `written` to what the edit makes of 1.

    Memories may not fire at all in the inputs on which two models are compared.
    """
    numbers = {
        Memory(layer, memory): 1.0 if written else change.factor + change.addend
        for layer, of_layer in changes.items()
        for memory, change in of_layer.items()
    }
    return model.edit(set=numbers)


class PartChanges(NamedTuple):
    """The changes of one part of a layer, by the memories' numbers in it."""

    part: Sliced
    memories: Tensor
    factors: Tensor
    addends: Tensor

    @property
    def adds(self) -> Tensor:
        """Which of them add a constant."""
        return self.addends != 0

    def weights(self) -> list[EditedWeight]:
        """The weights that they change."""
        values = [EditedWeight(self.part.value.name, self.part.value.axis)]
        return [*values, EditedWeight(self.part.bias, None)] if self.part.bias and self.adds.any() else values

    def originals(self, weights: Weights) -> list[Original]:
        """What they replace."""
        values, *bias = self.weights()
        rows = self.part.value.rows(weights[values.name], self.memories)
        return [
            Original(values, self.memories, rows),
            *(Original(weight, None, weights[weight.name]) for weight in bias),
        ]

    def apply(self, weights: Weights) -> float:
        """Change the weights. Returns the relative error of rounding the new numbers."""
        error = 0.0
        if self.adds.any():
            instead = "Zero or scale these memories instead."
            chosen = self.memories[self.adds], self.addends[self.adds]
            error = add_to_bias(weights, self.part, *chosen, option="--set", instead=instead)
        return max(error, scale_values(weights, self.part, self.memories, self.factors))


def by_part(model: MemoryModel, changes: Changes) -> list[PartChanges]:
    """The changes of every part that has any."""
    return [
        _of_part(part, mine)
        for part in sliced_parts(model)
        if (mine := {memory: change for memory, change in changes.get(part.layer, {}).items() if _has(part, memory)})
    ]


def _has(part: Sliced, memory: int) -> bool:
    return part.part.offset <= memory < part.part.offset + part.part.memories


def _of_part(part: Sliced, changes: dict[int, Change]) -> PartChanges:
    memories = sorted(changes)
    factors, addends = (
        torch.tensor([getattr(changes[memory], name) for memory in memories], dtype=torch.float64)
        for name in ("factor", "addend")
    )
    return PartChanges(part, torch.tensor(memories) - part.part.offset, factors, addends)


def restore(weights: Weights, originals: list[Original]) -> None:
    """Put back what an edit replaced; KeyError, IndexError or RuntimeError if it is not of these weights."""
    for original in originals:
        name, axis = original.weight.name, original.weight.axis
        if axis is None or original.memories is None:
            weights[name] = original.rows.to(weights[name])
        else:
            weights[name] = Slice(name, axis, is_value=True).with_rows(weights[name], original.memories, original.rows)
