"""How numbers of the summary are put into sentences."""

from collections.abc import Callable
from typing import Any, Literal

Entry = dict[str, Any]
LayerValue = tuple[int, float]
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
    """Of a series over its layers."""
    return sum(values) / len(values)


def by_depth(lowest: LayerValue, highest: LayerValue) -> str:
    """The shares in the lowest and the highest layer of a series; one where the series has one layer."""
    return ", ".join(f"{percent(share)} in layer {layer}" for layer, share in dict((lowest, highest)).items())


def trend(lowest: LayerValue, highest: LayerValue, *, expected: Literal["rises", "falls"]) -> str:
    """How a quantity changes from the lowest to the highest layer, compared with the paper."""
    (first_layer, bottom), (last_layer, top) = lowest, highest
    if first_layer == last_layer:
        return "one layer only, so no trend to compare"
    change = "rises" if top > bottom else "falls" if top < bottom else "does not change"
    return f"{change} with depth, {'as' if change == expected else 'unlike'} in the paper"


def compare(
    value: float | None, low: float, high: float, *, less: str = "lower", more: str = "higher", close: float = 0.2
) -> str:
    """A value beside the paper's range: in it, within a fifth of its ends, below or above it."""
    if value is None:
        return "nothing to compare"
    if low <= value <= high:
        return "as in the paper"
    if low * (1 - close) <= value <= high * (1 + close):
        return "close to the paper"
    return f"{less if value < low else more} than in the paper"
