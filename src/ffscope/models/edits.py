"""Edits of coefficients: which memories, at which positions, and the new coefficients."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

import torch
from torch import Tensor

from ffscope.axes import Bool, Float, Int
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.models.parts import Part, Reader

Name = str | Memory
# Arguments from the user, so of any type. They are checked, and refused with an InputError.
Names = Any  # one name or several; `L3` is every memory of a layer
Numbers = Any  # numbers by name, {"L3.17": 2.0}
Positions = Any  # one position or several


@dataclass(frozen=True)
class Change:
    """The new coefficient is factor × coefficient + addend."""

    factor: float
    addend: float


def parse_changes(zero: Names, scale: Numbers, set: Numbers) -> Iterator[tuple[Name, Change]]:
    """Each name with the change to its coefficient."""
    yield from ((name, Change(0.0, 0.0)) for name in ([zero] if isinstance(zero, str | Memory) else zero))
    yield from ((name, Change(_finite(name, factor), 0.0)) for name, factor in _items("scale", scale))
    yield from ((name, Change(0.0, _finite(name, value))) for name, value in _items("set", set))


def _items(argument: str, numbers: Any) -> Iterable[tuple[Name, Any]]:
    if not isinstance(numbers, Mapping):
        raise InputError(
            f"Expected `{argument}` as a dictionary from memories to numbers, such as {{'L3.17': 2.0}}; found {numbers!r}."
        )
    return numbers.items()


def _finite(name: Name, number: Any) -> float:
    if not isinstance(number, int | float) or not math.isfinite(number):
        raise InputError(f"Expected a finite number for {name}, found {number!r}.")
    return float(number)


def _indices(positions: Positions) -> tuple[int, ...]:
    try:
        return tuple(index(p) for p in (positions if isinstance(positions, Iterable) else [positions]))
    except TypeError as error:
        raise InputError(f"Expected positions as integers, such as [2, -1]; found {positions!r}.") from error


class Edit:
    """Changes to memories, at all positions or at some."""

    def __init__(self, changes: Iterable[tuple[Memory, Change]], positions: Positions) -> None:
        self.positions = None if positions is None else _indices(positions)
        self.by_layer: dict[int, dict[int, Change]] = {}
        for memory, change in changes:
            layer = self.by_layer.setdefault(memory.layer, {})
            if memory.memory in layer:
                raise InputError(f"{memory} is edited twice. Name each memory once, or nest two edits.")
            layer[memory.memory] = change

    def readers(self) -> Iterator[tuple[int, Reader]]:
        """One reader per layer that the edit changes."""
        for layer, changes in sorted(self.by_layer.items()):
            yield layer, self._reader(changes)

    def _reader(self, changes: dict[int, Change]) -> Reader:
        where = torch.tensor(list(changes))
        factors, addends = torch.tensor([(c.factor, c.addend) for c in changes.values()], dtype=torch.float64).T

        def change(part: Part, coefficients: Tensor, past: int) -> Tensor | None:
            mine = (where >= part.offset) & (where < part.offset + part.memories)
            rows = self._rows(coefficients.shape[1], past)
            if not rows or not mine.any():
                return None
            at = (slice(None), torch.tensor(rows)[:, None], where[mine] - part.offset)
            changed = coefficients.clone()
            exact = torch.promote_types(changed.dtype, torch.float32)
            factor, addend = factors[mine].to(changed.device, exact), addends[mine].to(changed.device, exact)
            # A factor of 0 must also erase infinite coefficients, so it replaces instead of multiplying.
            scaled = torch.where(factor == 0, 0.0, changed[at].to(exact) * factor)
            changed[at] = (scaled + addend).to(changed.dtype)
            return changed

        return change

    def _rows(self, length: int, past: int) -> list[int]:
        """The edited positions among those that this call computes."""
        if self.positions is None:
            return list(range(length))
        rows = (position + length if position < 0 else position - past for position in self.positions)
        return [row for row in rows if 0 <= row < length]


def set_in_rows(memories: Int[Tensor, "row"], coefficients: Float[Tensor, "row"]) -> Reader:
    """A reader that sets the coefficient of one memory of a layer in each row of a batch, at every position."""

    def change(part: Part, before: Tensor, _past: int) -> Tensor | None:
        rows = ((memories >= part.offset) & (memories < part.offset + part.memories)).nonzero()[:, 0]
        if not len(rows):
            return None
        changed = before.clone()
        at = rows.to(before.device), slice(None), (memories[rows] - part.offset).to(before.device)
        changed[at] = coefficients[rows, None].to(changed)
        return changed

    return change


def scale_in_rows(
    rows: Int[Tensor, "change"], memories: Int[Tensor, "change"], factors: Float[Tensor, "change"]
) -> Reader:
    """A reader that multiplies coefficients of a layer, each in one row of a batch, at every position."""

    def change(part: Part, before: Tensor, _past: int) -> Tensor | None:
        here = ((memories >= part.offset) & (memories < part.offset + part.memories)).nonzero()[:, 0]
        if not len(here):
            return None
        changed, here = before.clone(), here.to(memories.device)
        at = rows[here].to(before.device), slice(None), (memories[here] - part.offset).to(before.device)
        exact = torch.promote_types(before.dtype, torch.float32)
        factor = factors[here, None].to(before.device, exact)
        changed[at] = torch.where(factor == 0, 0.0, changed[at].to(exact) * factor).to(before.dtype)
        return changed

    return change


def set_where(chosen: Bool[Tensor, "memory"], coefficients: Float[Tensor, "memory"]) -> Reader:
    """A reader that sets the coefficients of some memories of a layer, at every position of every text."""

    def change(part: Part, before: Tensor, _past: int) -> Tensor | None:
        memories = slice(part.offset, part.offset + part.memories)
        if not chosen[memories].any():
            return None
        return torch.where(chosen[memories].to(before.device), coefficients[memories].to(before), before)

    return change


def zero_in_rows(chosen: Bool[Tensor, "row memory"]) -> Reader:
    """A reader that sets the coefficients of some memories of a layer to 0 in each row of a batch, at every position."""

    def change(part: Part, before: Tensor, _past: int) -> Tensor | None:
        here = chosen[:, part.offset : part.offset + part.memories]
        return before.masked_fill(here[:, None].to(before.device), 0) if here.any() else None

    return change
