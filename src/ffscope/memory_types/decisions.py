"""The types of memories, from the quantities that define them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ffscope.axes import Array, Bool
from ffscope.stages.types import TYPE_NAMES, TypeOptions

Quantities = Mapping[str, Array]
Answer = tuple[Bool[Array, "memory"], Bool[Array, "memory"]]
"""Whether each memory is of a type, and whether that is known."""


def decide(quantities: Quantities, options: TypeOptions) -> dict[str, Answer]:
    """Every type. A quantity that is NaN leaves its types unknown."""
    information, correlation = quantities["mutual_information"], quantities["frequency_correlation"]
    high_kurtosis = _known(quantities["kurtosis"], quantities["kurtosis"] > options.type_kurtosis)
    detector = np.ones_like(quantities["dead"]), quantities["firings"] >= options.type_firings
    token_detector = _both(detector, _certain(quantities["ngram"] == 1))
    return {
        "dead": _certain(quantities["dead"]),
        "token_detector": token_detector,
        "suppresses_token": _suppresses(token_detector, quantities["suppressed"]),
        "ngram_detector": _both(detector, _certain(quantities["ngram"] > 1)),
        "positional_memory": _known(information, information > options.type_information),
        "promoter": _both(high_kurtosis, _known(quantities["skew"], quantities["skew"] > 0)),
        "suppressor": _both(high_kurtosis, _known(quantities["skew"], quantities["skew"] < 0)),
        "token_frequency": _known(correlation, np.abs(correlation) >= options.type_correlation),
        "entropy": _entropy(quantities, options),
    }


def columns_of(answers: Mapping[str, Answer]) -> dict[str, Any]:
    """The columns of the types: yes, no or null; and their names in one text."""
    columns: dict[str, Any] = {
        name: [bool(answer) if known else None for answer, known in zip(*answers[name], strict=True)]
        for name in TYPE_NAMES
    }
    rows = zip(*(columns[name] for name in TYPE_NAMES), strict=True)
    names = list(TYPE_NAMES.values())
    columns["types"] = [
        ", ".join(name for name, answer in zip(names, row, strict=True) if answer) or "none" for row in rows
    ]
    return columns


def _suppresses(token_detector: Answer, share: Array) -> Answer:
    """More than half of the detected tokens are suppressed. A memory that is no token detector is of no such type."""
    detects, known = token_detector
    return detects & (share > 0.5), known & (~detects | ~np.isnan(share))


def _entropy(quantities: Quantities, options: TypeOptions) -> Answer:
    norm, variance, through_norm = (
        quantities[name] for name in ("norm_percentile", "variance_percentile", "through_norm")
    )
    large = _known(norm, norm >= options.type_norm)
    flat = _known(variance, variance <= options.type_variance)
    return _both(_both(large, flat), _known(through_norm, through_norm >= options.type_through_norm))


def _known(numbers: Array, answer: Array) -> Answer:
    return answer, ~np.isnan(numbers)


def _certain(answer: Array) -> Answer:
    return answer, np.ones_like(answer)


def _both(a: Answer, b: Answer) -> Answer:
    return a[0] & b[0], a[1] & b[1]
