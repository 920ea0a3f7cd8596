"""Which attributes of a model's config set the widths of its feed-forward layers: found by building the model with another width.

A family states no attribute, so that one that is not in the table needs none either. Each candidate is tried on a model without
numbers, and is accepted if it changes the weights that have memories, by as many memories each, and nothing else.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Size
from transformers import PretrainedConfig

from ffscope.errors import LayoutError, first_line
from ffscope.models.slices import Sliced

Shapes = dict[str, Size]


@dataclass(frozen=True)
class Width:
    """An attribute of a config, its value, and how many memories each part loses where the value is lower by one."""

    attribute: str  # with the sections of the config before it: `text_config.intermediate_size`
    value: int
    factors: dict[int, int]  # by the part's place in the list of all parts

    def set(self, config: Any, value: int) -> None:
        """Set the attribute."""
        *sections, name = self.attribute.split(".")
        for section in sections:
            config = getattr(config, section)
        setattr(config, name, value)


def find_widths(model: Any, parts: list[Sliced]) -> list[Width]:
    """The attributes that set the widths of all parts; LayoutError if a part has none."""
    widths: list[Width] = []
    shapes = _shapes(model)
    missing = set(range(len(parts)))
    for attribute, value in _candidates(model.config, {part.width for part in parts}):
        width = Width(attribute, value, {})
        factors = _factors(model, width, parts, shapes)
        if factors and factors.keys() <= missing:
            widths.append(Width(attribute, value, factors))
            missing -= factors.keys()
        if not missing:
            return widths
    part = parts[min(missing)]
    raise LayoutError(
        f"Expected an attribute of the config of {type(model).__name__} that sets the width of layer {part.layer}, "
        f"{part.width} memories, and changes nothing else; found none. This family cannot have another width. Use --zero-rows, "
        "which keeps the width and sets the values of pruned memories to 0."
    )


def _without_numbers(model: Any, config: Any) -> Any:
    """A model of the same class from a config, on the meta device."""
    with torch.device("meta"):
        return type(model)(config)


def _candidates(config: Any, widths: set[int]) -> Iterator[tuple[str, int]]:
    """Attributes and their values: first those equal to a width, then divisors of one, then those that are left out."""
    attributes = list(_attributes(config, ""))
    numbers = [(name, value) for name, value in attributes if type(value) is int and value > 1]
    yield from ((name, value) for name, value in numbers if value in widths)
    yield from (
        (name, value) for name, value in numbers if value not in widths and any(width % value == 0 for width in widths)
    )
    yield from ((name, width) for name, value in attributes if value is None for width in sorted(widths))


def _attributes(config: Any, before: str) -> Iterator[tuple[str, Any]]:
    for name, value in vars(config).items():
        if isinstance(value, PretrainedConfig):
            yield from _attributes(value, f"{before}{name}.")
        elif not name.startswith("_"):
            yield f"{before}{name}", value


def _factors(model: Any, width: Width, parts: list[Sliced], before: Shapes) -> dict[int, int]:
    """How many memories each part loses with a value that is lower by one; none if anything else changes."""
    config = copy.deepcopy(model.config)
    try:
        width.set(config, width.value - 1)
        after = _shapes(_without_numbers(model, config))
    except Exception:  # a config may check its values in any way
        return {}
    changes = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    factors = {number: _lost(part, before, after) for number, part in enumerate(parts)}
    if any(lost is None for lost in factors.values()):
        return {}
    narrower = {number: lost for number, lost in factors.items() if lost}
    explained = {piece.name for number in narrower for piece in parts[number].slices}
    return narrower if changes == explained else {}


def _lost(part: Sliced, before: Shapes, after: Shapes) -> int | None:
    """The memories that all weights of a part lose; None if they differ, or anything else about them does."""
    lost = set()
    for piece in part.slices:
        old, new = list(before[piece.name]), list(after.get(piece.name, ()))
        if len(old) != len(new):
            return None
        change, remainder = divmod(old[piece.axis] - new[piece.axis], piece.factor)
        old[piece.axis] = new[piece.axis]
        if old != new or remainder or change < 0:
            return None
        lost.add(change)
    return lost.pop() if len(lost) == 1 else None


def _shapes(model: Any) -> Shapes:
    return {name: tensor.shape for name, tensor in model.state_dict().items()}


def with_widths(model: Any, widths: dict[str, int], known: list[Width]) -> Any:
    """A model without numbers, of the same class, whose config has other values of known widths, by attribute."""
    config = copy.deepcopy(model.config)
    for width in known:
        width.set(config, widths[width.attribute])
    try:
        return _without_numbers(model, config)
    except Exception as error:  # as above
        raise LayoutError(
            f"{type(model).__name__} cannot be built with {', '.join(f'{name} = {value}' for name, value in widths.items())}: "
            f"{first_line(error)}. Choose another share, or use --zero-rows."
        ) from error
