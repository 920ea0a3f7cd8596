"""How numbers of the summary are put into sentences."""

from collections.abc import Callable
from typing import Any

Entry = dict[str, Any]
# What the measures of one memory are called.
MEASURES = {
    "fires": "share of prefixes on which the memory fires",
    "max_prob": "highest probability in the value's distribution",
    "next_rank": "rank of the next token in the value (1 = top)",
    "precision": "share of triggers followed by the value's top token",
}


def percent(share: float | None) -> str:
    """A share as people write it."""
    if share is None:
        return "–"
    hundredths = 100 * share or 0.0
    form = ".0f" if abs(hundredths) >= 10 else ".1f" if abs(hundredths) >= 1 else ".2g"
    return f"{hundredths:{form}} %".replace("-", "−")


def ends(entry: Entry, name: str) -> tuple[tuple[int, float], tuple[int, float]]:
    """The lowest and the highest layer that a series has, with its values there."""
    values = entry["series"][name]["value"]
    return (entry["layer"][0], values[0]), (entry["layer"][-1], values[-1])


def peak(entry: Entry, name: str, best: Callable[..., float] = max) -> tuple[int, float]:
    """The layer where a series is highest (or lowest), and its value there."""
    values = entry["series"][name]["value"]
    at = values.index(best(values))
    return entry["layer"][at], values[at]


def interval(entry: Entry, name: str, layer: int) -> str:
    """The interval of a series in one layer."""
    at = entry["layer"].index(layer)
    low, high = (entry["series"][name][end][at] for end in ("low", "high"))
    return f"{percent(low)} to {percent(high)}"


def mean(values: list[float]) -> float:
    """Of a series over its layers."""
    return sum(values) / len(values)
