"""A figure in the JSON of a page."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Drawing:
    """A figure: its vega-lite specification, and a sentence on what it shows."""

    name: str
    title: str
    sentence: str
    spec: dict[str, Any]
    number: int | None = None  # of the corresponding figure in the paper
    how_to_read: str = ""  # one line on axes, bars and bands
