"""How far a stage is: told by the library, shown by whoever called it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a stage is. `rate` counts prefixes a second, `left` is the time it will still take, `detail` is what it is at."""

    stage: str
    done: int
    total: int | None = None
    unit: str = "sentences"
    rate: float | None = None
    left: float | None = None
    detail: str | None = None


ProgressCallback = Callable[[Progress], None]


def no_progress(_: Progress) -> None:
    """Where no one wants to know."""
