"""Interventions on memories: their spelling in links, checks, and applying them to a model; no torch."""

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ffscope.errors import InputError
from ffscope.live.responses import Applied, Kind
from ffscope.memory_name import parse_name

if TYPE_CHECKING:
    from ffscope.models.memory_model import MemoryModel, Trace

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
_POSITION = re.compile(r"-?\d{1,9}", re.ASCII)
_MAX_COUNT, _MAX_NUMBER = 200, 1e6


class Target(NamedTuple):
    """One memory, or every memory of a layer if `memory` is None."""

    layer: int
    memory: int | None = None

    def __str__(self) -> str:
        return f"L{self.layer}" if self.memory is None else f"L{self.layer}.{self.memory}"


@dataclass(frozen=True)
class Interventions:
    """The arguments of `MemoryModel.edit`: which memories to zero, scale and set, and at which positions (None: at all).

    Targets and positions are sorted, so that equal interventions compare equal and have the same link.
    """

    zero: tuple[Target, ...] = ()
    scale: tuple[tuple[Target, float], ...] = ()
    set: tuple[tuple[Target, float], ...] = ()
    positions: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "zero", tuple(sorted(self.zero, key=_order)))
        for kind in ("scale", "set"):
            pairs = [(target, _check_number(target, number)) for target, number in getattr(self, kind)]
            object.__setattr__(self, kind, tuple(sorted(pairs, key=lambda pair: _order(pair[0]))))
        if self.positions is not None:
            object.__setattr__(self, "positions", tuple(sorted({*self.positions})))
            _refuse_too_many("positions", len(self.positions))
        targets = [target for target, _, _ in self.changes()]
        _refuse_too_many("interventions", len(targets))
        _refuse_repeated(targets)

    @classmethod
    def parse(cls, zero: str = "", scale: str = "", set: str = "", positions: str = "") -> "Interventions":
        """From a link: `zero="L3.17,L4"`, `scale="L3.1:2,L5:-1"`, `set` likewise, `positions="0,-1"`; `""` means all positions."""
        return cls(
            tuple(Target(*parse_name(name)) for name in _terms(zero)),
            tuple(_parse_pair("scale", term) for term in _terms(scale)),
            tuple(_parse_pair("set", term) for term in _terms(set)),
            tuple(_parse_position(term) for term in _terms(positions)) or None,
        )

    @property
    def any(self) -> bool:
        """Whether anything is changed."""
        return bool(self.zero or self.scale or self.set)

    def changes(self) -> Iterator[tuple[Target, Kind, float | None]]:
        """Each target with its kind of change and the number."""
        yield from ((target, "zero", None) for target in self.zero)
        yield from ((target, "scale", number) for target, number in self.scale)
        yield from ((target, "set", number) for target, number in self.set)

    def link(self) -> dict[str, str]:
        """The arguments of `parse` for these interventions: `{"zero": "L3.17", "scale": "L4:-1", "set": "", "positions": "-1"}`."""
        return {
            "zero": ",".join(map(str, self.zero)),
            "scale": ",".join(f"{target}:{_format_number(number)}" for target, number in self.scale),
            "set": ",".join(f"{target}:{_format_number(number)}" for target, number in self.set),
            "positions": ",".join(map(str, self.positions or ())),
        }


def position_from_start(position: int, length: int) -> int:
    """A position counted from 0, where a negative one counts from the end; raises if the text has no such position."""
    if not -length <= position < length:
        raise InputError(
            f"There is no position {position}: the text has {length} tokens, BOS included, counted from 0."
        )
    return position % length


def apply(model: "MemoryModel", interventions: Interventions) -> AbstractContextManager[None]:
    """Apply the interventions within a `with` block, in this thread only."""
    return model.edit(
        zero=[str(target) for target in interventions.zero],
        scale={str(target): number for target, number in interventions.scale},
        set={str(target): number for target, number in interventions.set},
        positions=interventions.positions,
    )


def check_interventions(model: "MemoryModel", interventions: Interventions, *, length: int) -> Interventions:
    """The same interventions; raises if the model lacks one of the memories or a text of that length one of the positions."""
    for target, _, _ in interventions.changes():
        model.layer(target.layer)
        if target.memory is not None:
            model.memory((target.layer, target.memory))
    positions_from_start(interventions, length=length)
    return interventions


def positions_from_start(interventions: Interventions, *, length: int) -> list[int] | None:
    """The positions of the interventions, counted from 0; None if they apply at all positions."""
    if interventions.positions is None:
        return None
    return sorted({position_from_start(position, length) for position in interventions.positions})


def changed_layers(interventions: Interventions) -> list[int]:
    """The layers that the interventions change."""
    return sorted({target.layer for target, _, _ in interventions.changes()})


def describe_applied(interventions: Interventions, trace: "Trace", *, position: int) -> list[Applied]:
    """Each intervention with the coefficient in a run without it, at a negative position, which counts from the end."""
    return [
        Applied(str(target), kind, number, _coefficient(trace, target, position))
        for target, kind, number in interventions.changes()
    ]


def _coefficient(trace: "Trace", target: Target, position: int) -> float | None:
    coefficients = trace.coefficients[trace.layers.index(target.layer)][0]
    if target.memory is None or -position > len(coefficients):
        return None
    return coefficients[position, target.memory].item()


def _order(target: Target) -> tuple[int, int]:
    return target.layer, -1 if target.memory is None else target.memory


def _terms(text: str) -> list[str]:
    terms = [term.strip() for term in text.split(",")] if text.strip() else []
    _refuse_too_many("interventions", len(terms))
    return terms


def _refuse_too_many(noun: str, count: int) -> None:
    if count > _MAX_COUNT:
        raise InputError(f"Expected at most {_MAX_COUNT} {noun}, found {count}. Remove some of them.")


def _refuse_repeated(targets: Iterable[Target]) -> None:
    """Raise if a memory is changed twice, by its own name or by that of its layer."""
    earlier: set[Target] = set()
    layers = {target.layer for target in targets if target.memory is None}
    for target in targets:
        if target in earlier:
            raise InputError(f"{target} is changed twice. Name it once, under zero, scale or set.")
        if target.memory is not None and target.layer in layers:
            raise InputError(
                f"{target} is changed twice, once with its whole layer L{target.layer}. Name one of the two."
            )
        earlier.add(target)


def _parse_pair(kind: str, term: str) -> tuple[Target, float]:
    name, colon, number = (piece.strip() for piece in term.partition(":"))
    target = Target(*parse_name(name))
    if not colon or not _NUMBER.fullmatch(number):
        raise InputError(f"Expected a memory and a number to {kind}, such as '{target}:2'; found {term[:60]!r}.")
    return target, float(number)


def _parse_position(term: str) -> int:
    if not _POSITION.fullmatch(term):
        raise InputError(f"Expected positions as integers, such as 0,3 or -1 for the last; found {term[:60]!r}.")
    return int(term)


def _check_number(target: Target, number: float) -> float:
    if not math.isfinite(number) or abs(number) > _MAX_NUMBER:
        raise InputError(
            f"Expected a number from -{_MAX_NUMBER:.0f} to {_MAX_NUMBER:.0f} for {target}, found {number}."
        )
    return float(number) + 0.0  # turns -0 into 0


def _format_number(number: float) -> str:
    return repr(number).removesuffix(".0")
