"""How concentrated effects are: the share of their sum that the top 1 % of the memories carry."""

from typing import Any

import numpy as np

from ffscope.axes import Array
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import by_depth, ends, percent

_LABEL = "share of the effects carried by the top 1 %"


def _series(source: Source) -> Entry:
    columns = source.tables.columns("effects", "layer", "effect_size")
    sizes = columns["effect_size"].astype(np.float64)
    columns = {"layer": columns["layer"], "effect_size": sizes}
    layers, shares = by_layer(columns, "effect_size", lambda rows: source.statistic(rows, top_share))
    return {
        "layer": layers,
        "series": {"top_share": shares},
        "all": source.statistic(sizes, top_share),
        "half": source.statistic(sizes, share_with_half),
    }


def top_share(sizes: Array) -> float:
    """The share of the sum that the largest hundredth carries (at least one number); NaN if all are 0."""
    count = max(1, round(len(sizes) / 100))
    total = sizes.sum()
    return float(np.partition(sizes, -count)[-count:].sum() / total) if total > 0 else np.nan


def share_with_half(sizes: Array) -> float:
    """The share of the numbers, largest first, that make up half of the sum; NaN if all are 0."""
    sums = np.sort(sizes)[::-1].cumsum()
    return float((np.searchsorted(sums, sums[-1] / 2) + 1) / len(sizes)) if sums[-1] > 0 else np.nan


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    return drawing.share_bars(entry, "top_share", _LABEL, chance=0.01)


def _sentence(entry: Entry) -> str:
    whole, half = entry["all"], entry["half"]
    if whole["value"] is None:
        return "No memory has an effect at the examples."
    return (
        f"Over all layers, the 1 % of the memories with the largest effects carry {percent(whole['value'])} of the sum of all "
        f"effects (95 % interval {percent(whole['low'])} to {percent(whole['high'])}), and {percent(half['value'])} of the "
        "memories carry half of it. A memory's effect is the estimated change of the loss without it, here its mean absolute size."
    )


def _findings(entry: Entry) -> list[Finding]:
    value = entry["all"]["value"]
    if value is None:
        return []
    lowest, highest = ends(entry, "top_share")
    even = "more even than a tenth in the top 1 %" if value < 0.1 else "a few memories carry much of it"
    return [
        Finding(
            "Share of all effects on the loss carried by the top 1 % of the memories",
            f"{percent(value)}; {by_depth(lowest, highest)}",
            "not measured",
            even,
        )
    ]


FIGURE = Figure(
    name="effect_concentration",
    title="Share of the effects on the loss carried by the top 1 % of the memories",
    stage="effects",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Bar: the share of a layer's effects that the 1 % of its memories with the largest ones carry. Whisker: 95 % interval over "
        "memories. Dashed line: 1 %, if all effects were equal."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={"top_share": _LABEL},
)
