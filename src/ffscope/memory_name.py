"""The names of memories: `L12.345` is hidden dimension 345 of feed-forward layer 12, both counted from 0."""

import re
from typing import NamedTuple

from ffscope.errors import MemoryNameError

_NAME = re.compile(r"L(\d{1,9})(?:\.(\d{1,9}))?", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


class Memory(NamedTuple):
    """One hidden dimension of one feed-forward layer."""

    layer: int
    memory: int

    def __str__(self) -> str:
        return f"L{self.layer}.{self.memory}"

    @classmethod
    def parse(cls, name: str) -> "Memory":
        """`"L12.345"` as a Memory."""
        layer, memory = parse_name(name)
        if memory is None:
            raise MemoryNameError(f"{name!r} names a whole layer. Expected the name of a memory, such as 'L{layer}.0'.")
        return cls(layer, memory)


def parse_name(name: str) -> tuple[int, int | None]:
    """`"L12.345"` as (12, 345); a whole layer, `"L12"`, as (12, None)."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise MemoryNameError(
            f"{name[:60]!r} is not a memory's name. Expected layer and memory, both counted from 0, "
            f"such as 'L12.345'{_suggestion(name)}"
        )
    layer, memory = match.groups()
    return int(layer), None if memory is None else int(memory)


def parse_layers(text: str, count: int) -> list[int]:
    """`"0,3-5"` as [0, 3, 4, 5], for a model of `count` layers."""
    return parse_numbers(text, count, "layers")


def parse_numbers(text: str, count: int, what: str) -> list[int]:
    """`"0,3-5"` as [0, 3, 4, 5]; the numbers must be below `count`."""
    chosen: list[int] = []
    for term in text.split(","):
        match = _RANGE.fullmatch(term.strip())
        if match is None:
            raise MemoryNameError(
                f"{term!r} is not a range of {what}. Expected numbers and ranges from 0, such as '0,3-5'."
            )
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise MemoryNameError(
                f"{term.strip()!r} is a descending range. Write the smaller number first: '{last}-{first}'."
            )
        if last >= count:
            raise MemoryNameError(f"There are no {what} {term.strip()}. This model has {what} 0 to {count - 1}.")
        chosen += range(first, last + 1)
    return list(dict.fromkeys(chosen))


def _suggestion(name: str) -> str:
    numbers = re.findall(r"\d+", name, re.ASCII)
    suggested = f"L{'.'.join(numbers)}"
    return f". Did you mean {suggested!r}?" if len(numbers) == 2 and _NAME.fullmatch(suggested) else "."
