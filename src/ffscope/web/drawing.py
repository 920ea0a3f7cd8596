"""A figure as pages show it."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Drawing:
    """A figure as a vega-lite specification, and what it shows."""

    name: str
    title: str
    sentence: str
    spec: dict[str, Any]
    number: int | None = None  # of the paper's figure that it answers
    how_to_read: str = ""
