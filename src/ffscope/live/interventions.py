"""What is done to memories while a model runs, and how a link spells it; no torch."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ffscope.errors import InputError
from ffscope.memory import Memory

Kind = Literal["off", "scale", "set"]
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_MOST, _LARGEST = 200, 1e6


@dataclass(frozen=True)
class Interventions:
    """Memories switched off, and memories whose coefficient is multiplied by, or set to, a number; in order, each once."""

    off: tuple[Memory, ...] = ()
    scale: tuple[tuple[Memory, float], ...] = ()
    set: tuple[tuple[Memory, float], ...] = ()

    def __post_init__(self) -> None:
        # In one order, so that the same interventions are equal and have one link.
        object.__setattr__(self, "off", tuple(sorted(self.off)))
        for kind in ("scale", "set"):
            numbered = sorted((memory, _checked(memory, number)) for memory, number in getattr(self, kind))
            object.__setattr__(self, kind, tuple(numbered))
        changed = [memory for memory, _, _ in self.changes()]
        if len(changed) > _MOST:
            raise InputError(f"Expected at most {_MOST} interventions, found {len(changed)}. Take some of them away.")
        twice = next((memory for i, memory in enumerate(changed) if memory in changed[:i]), None)
        if twice is not None:
            raise InputError(f"{twice} is changed twice. Name each memory once, as off, scale or set.")

    @classmethod
    def parse(cls, off: str = "", scale: str = "", set: str = "") -> "Interventions":
        """A link's spelling: off `"L3.17,L4.2"`, scale and set `"L3.17:2,L4.2:-1"`; `""` is none."""
        return cls(
            tuple(Memory.parse(name) for name in _terms(off)),
            tuple(_numbered("scale", term) for term in _terms(scale)),
            tuple(_numbered("set", term) for term in _terms(set)),
        )

    @property
    def any(self) -> bool:
        return bool(self.off or self.scale or self.set)

    def changes(self) -> Iterator[tuple[Memory, Kind, float | None]]:
        """Each memory with what is done to it, and the number."""
        yield from ((memory, "off", None) for memory in self.off)
        yield from ((memory, "scale", number) for memory, number in self.scale)
        yield from ((memory, "set", number) for memory, number in self.set)

    def link(self) -> dict[str, str]:
        """What `parse` reads: `{"off": "L3.17", "scale": "L4.2:-1", "set": ""}`."""
        return {
            "off": ",".join(map(str, self.off)),
            "scale": ",".join(f"{memory}:{_spelt(number)}" for memory, number in self.scale),
            "set": ",".join(f"{memory}:{_spelt(number)}" for memory, number in self.set),
        }


def _terms(text: str) -> list[str]:
    terms = [term.strip() for term in text.split(",")] if text.strip() else []
    if len(terms) > _MOST:
        raise InputError(f"Expected at most {_MOST} interventions, found {len(terms)}. Take some of them away.")
    return terms


def _numbered(kind: str, term: str) -> tuple[Memory, float]:
    name, colon, number = (piece.strip() for piece in term.partition(":"))
    memory = Memory.parse(name)
    if not colon or not _NUMBER.fullmatch(number):
        raise InputError(f"Expected a memory and a number to {kind}, such as '{memory}:2'; found {term[:60]!r}.")
    return memory, float(number)


def _checked(memory: Memory, number: float) -> float:
    if not math.isfinite(number) or abs(number) > _LARGEST:
        raise InputError(f"Expected a number from -{_LARGEST:.0f} to {_LARGEST:.0f} for {memory}, found {number}.")
    return float(number) + 0.0  # which makes 0 of -0


def _spelt(number: float) -> str:
    return repr(number).removesuffix(".0")
