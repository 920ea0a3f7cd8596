"""Universality: how many memories have a partner in another model, by layer."""

from typing import Any

import numpy as np

from ffscope.queries.diff import compared_memories
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import percent

_LABELS = {
    "universal": "with the partner",
    "baseline": "with a random direction",
    "excess": "in excess of a random direction",
}
_AXIS = "share of memories"


def _series(source: Source) -> Entry | None:
    columns, entry = compared_memories(source.tables), source.study.manifest["stages"]["diff"]
    threshold = entry["options"]["universal_above"]
    with np.errstate(invalid="ignore"):  # a memory without a correlation is above no threshold
        above = {
            "universal": columns["correlation"] > threshold,
            "baseline": columns["baseline"] > threshold,
            "excess": columns["correlation"] - columns["baseline"] > threshold,
        }
    names = list(above) if entry["match"] == "activations" else ["universal"]
    series, layers = {}, list[int]()
    for name in names:
        layers, series[name] = by_layer({"layer": columns["layer"], name: above[name]}, name, source.share)
    return {
        "layer": layers,
        "series": series,
        "overall": {name: source.share(above[name]) for name in names},
        "threshold": threshold,
        "memories": len(columns["layer"]),
        "match": entry["match"],
    }


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    colours = {"universal": drawing.BLUE, "baseline": drawing.GREY, "excess": drawing.RED}
    labelled = {_LABELS[name]: values for name, values in entry["series"].items()}
    shown = {_LABELS[name]: colours[name] for name in entry["series"]}
    return drawing.dots({"layer": entry["layer"], "series": labelled}, shown, _axis(entry), form=".2%")


def _axis(entry: Entry) -> str:
    return f"{_AXIS} with a correlation above {entry['threshold']:g}"


def _sentence(entry: Entry) -> str:
    overall = entry["overall"]
    share = overall["universal"]
    sentence = (
        f"{percent(share['value'])} of {entry['memories']:,} memories ({percent(share['low'])} to {percent(share['high'])}) have a "
        f"correlation above {entry['threshold']:g} with their partner in the other model"
    )
    if entry["match"] == "index":
        return f"{sentence}, the memory of the same number."
    return (
        f"{sentence}, the best of all its memories; {percent(overall['baseline']['value'])} with one of as many random directions, "
        f"and {percent(overall['excess']['value'])} exceed that by more than {entry['threshold']:g}."
    )


def _findings(entry: Entry) -> list[Finding]:
    overall = entry["overall"]
    if entry["match"] == "index":
        return []
    return [
        Finding(
            f"Memories with a correlation above {entry['threshold']:g} with a memory of the other model",
            percent(overall["universal"]["value"]),
            "not measured",
            f"{percent(overall['baseline']['value'])} with a random direction",
        )
    ]


FIGURE = Figure(
    name="universality",
    title="Memories with a partner in the other model, by layer",
    stage="diff",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Point: share of the layer's memories whose coefficients have a correlation above the threshold with those of their "
        "partner, or with the best of the random directions. Line: 95 % interval."
    ),
    sentence=_sentence,
    findings=_findings,
    labels=_LABELS,
)
