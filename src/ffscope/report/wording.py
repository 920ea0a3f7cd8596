"""Numbers of the summary in words: shares, intervals, comparisons with the paper."""

from collections.abc import Callable
from typing import Any, Literal

Entry = dict[str, Any]
LayerValue = tuple[int, float]
_CLOSE = 0.2  # share of the paper's value by which a value close to it may differ
# Names of the measures of a memory.
MEASURES = {
    "fires": "share of prefixes on which the memory fires",
    "max_prob": "highest probability in the value's distribution",
    "next_rank": "rank of the next token in the value (1 = top)",
    "precision": "share of triggers followed by the value's top token",
}


def percent(share: float | None) -> str:
    """A share in percent, with as many digits as matter."""
    if share is None:
        return "–"
    hundredths = 100 * share or 0.0
    form = ".0f" if abs(hundredths) >= 10 else ".1f" if abs(hundredths) >= 1 else ".2g"
    return f"{decimal(hundredths, form)} %"


def decimal(number: float, form: str = ".2f") -> str:
    """A number that may be below 0."""
    return f"{number:{form}}".replace("-", "−")


def ends(entry: Entry, name: str) -> tuple[LayerValue, LayerValue]:
    """The lowest and the highest layer that a series has, with its values there."""
    values = entry["series"][name]["value"]
    return (entry["layer"][0], values[0]), (entry["layer"][-1], values[-1])


def peak(entry: Entry, name: str, best: Callable[..., float] = max) -> LayerValue:
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
    """The mean of a series over its layers."""
    return sum(values) / len(values)


def by_depth(lowest: LayerValue, highest: LayerValue) -> str:
    """The shares in the lowest and the highest layer of a series; one where the series has one layer."""
    return ", ".join(f"{percent(share)} in layer {layer}" for layer, share in dict((lowest, highest)).items())


def trend(
    lowest: LayerValue,
    highest: LayerValue,
    *,
    expected: Literal["rises", "falls"],
    top: tuple[float, float] | None = None,
) -> str:
    """How a quantity changes from the lowest to the highest layer, compared with the paper; `top` is its range there."""
    (first_layer, first), (last_layer, last) = lowest, highest
    change = "rises" if last > first else "falls" if last < first else "does not change"
    likeness = f"{change} with depth, {'as' if change == expected else 'unlike'} in the paper"
    if first_layer == last_layer:
        likeness = "in one layer only, no trend"
    if top is None or top[0] * (1 - _CLOSE) <= last <= top[1] * (1 + _CLOSE):
        return likeness
    return f"{likeness}; {'lower' if last < top[0] else 'higher'} at the top than in the paper"


def compare(value: float | None, low: float, high: float) -> str:
    """A value compared with the paper's range: in it, within a fifth of its ends, below or above it."""
    if value is None:
        return "nothing to compare"
    if low <= value <= high:
        return "as in the paper"
    if low * (1 - _CLOSE) <= value <= high * (1 + _CLOSE):
        return "close to the paper"
    return f"{'lower' if value < low else 'higher'} than in the paper"
