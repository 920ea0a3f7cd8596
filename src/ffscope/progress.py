"""Progress of a stage: reported by the library, displayed by the caller."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """The progress of a stage. `rate` is in prefixes per second, `left` in seconds; `detail` says what is being read."""

    stage: str
    done: int
    total: int | None = None
    unit: str = "sentences"
    rate: float | None = None
    left: float | None = None
    detail: str | None = None


ProgressCallback = Callable[[Progress], None]


def no_progress(_: Progress) -> None:
    """Ignores the progress."""
