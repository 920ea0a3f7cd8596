"""What pruning a share of a single layer costs, layer by layer."""

from typing import Any

import numpy as np

from ffscope.queries.pruning import pruning_points
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.pruning import NAMES, colours
from ffscope.report.series import Source
from ffscope.report.wording import decimal, percent

_AXIS = "change of the loss (nats)"


def _series(source: Source) -> Entry | None:
    columns = pruning_points(source.tables)
    alone = ~np.isnan(columns["layer"].astype(np.float64))
    if not alone.any():
        return None
    layers = np.unique(columns["layer"][alone]).astype(int).tolist()
    names = [name for name in NAMES if (columns["score"][alone] == name).any()]
    series = {}
    for name in names:
        here = alone & (columns["score"] == name)
        order = np.argsort(columns["layer"][here])
        ends = {"value": "change", "low": "low", "high": "high"}
        series[name] = {
            end: [_finite(number) for number in columns[column][here][order]] for end, column in ends.items()
        }
    share = round(float(columns["share"][alone][0]), 6)
    return {"layer": layers, "share": share, "series": series}


def _finite(number: float) -> float | None:
    """The number; None if half precision overflowed."""
    return float(number) if np.isfinite(number) else None


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    named = {**entry, "series": {NAMES[name]: numbers for name, numbers in entry["series"].items()}}
    return drawing.dots(named, colours(entry["series"]), _AXIS, form="+.4f", rule=0.0, legend={"columns": 3})


def _means(entry: Entry) -> dict[str, float]:
    """The mean change over the layers by each score, the lowest first."""
    means = {
        name: sum(numbers["value"]) / len(numbers["value"])
        for name, numbers in entry["series"].items()
        if None not in numbers["value"]
    }
    return dict(sorted(means.items(), key=lambda item: item[1]))


def _sentence(entry: Entry) -> str:
    means = _means(entry)
    if not means:
        return "The loss overflows in every order."
    best = next(iter(means))
    values = dict(zip(entry["layer"], entry["series"][best]["value"], strict=True))
    least, most = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    parts = "; ".join(f"{NAMES[name]} {_signed(mean)}" for name, mean in means.items())
    return (
        f"Mean change of the loss when {percent(entry['share'])} of one layer is pruned and the others stay, by the score it is "
        f"chosen by: {parts} nats. By {NAMES[best]} it is least in layer {least} ({_signed(values[least])}) and most in "
        f"layer {most} ({_signed(values[most])})."
    )


def _signed(number: float) -> str:
    return decimal(number, "+.4f")


def _findings(entry: Entry) -> list[Finding]:
    means = _means(entry)
    best = next((name for name in means if name != "random"), None)
    if best is None:
        return []
    values = entry["series"][best]["value"]
    first, last = (
        f"{_signed(value)} in layer {layer}"
        for layer, value in zip((entry["layer"][0], entry["layer"][-1]), (values[0], values[-1]), strict=True)
    )
    most = entry["layer"][values.index(max(values))]
    return [
        Finding(
            f"Change of the loss without {percent(entry['share'])} of one layer, by {NAMES[best]}",
            f"{first}, {last}" if len(values) > 1 else first,
            "not measured",
            f"layer {most} needs its memories most",
        )
    ]


FIGURE = Figure(
    name="pruning_layers",
    title="Change of the loss when a share of one layer is pruned",
    stage="prune",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Point: change of the mean loss over held-out text when this share of one layer's memories is taken away and the other "
        "layers stay as they are. Line: 95 % interval over prefixes; at random, the lowest and highest of several draws."
    ),
    sentence=_sentence,
    findings=_findings,
    labels=NAMES,
)
