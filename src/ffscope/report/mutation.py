"""Figure 3: how a trigger's coefficient changes when the trigger loses a token."""

import json
from typing import Any

import numpy as np

from ffscope.queries.series import mutation_changes
from ffscope.report import bootstrap
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Series, Source
from ffscope.report.wording import by_depth, compare, ends, mean, percent, trend

_PAPER = {
    "first": [(1, 16, -0.15, -0.10)],
    "random": [(1, 16, -0.20, -0.15)],
    "last": [(1, 1, -0.70, -0.65), (16, 16, -0.20, -0.20)],
}


def _series(source: Source) -> Entry:
    columns = mutation_changes(source.tables)
    layers = np.unique(columns["layer"])
    series: dict[str, Series] = {}
    for removed in ("first", "last", "random"):
        series[removed] = {"value": [], "low": [], "high": []}
        for layer in layers:
            here = (columns["layer"] == layer) & (columns["removed"] == removed)
            sums, counts = columns["total"][here], columns["rows"][here].astype(np.int64)
            numbers = (sums.sum() / counts.sum(), *bootstrap.mean_of_clusters(sums, counts, source.generator))
            for name, number in zip(series[removed], numbers, strict=True):
                series[removed][name].append(float(number))
    stage = source.study.manifest["stages"]["mutation"]
    memories = [len(np.unique(columns["memory"][columns["layer"] == layer])) for layer in layers]
    tokens = {name: stage[name] for name in ("forward_tokens", "plain_tokens")}
    return {"layer": layers.tolist(), "series": series, "memories": memories, **tokens}


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    colours = {"first": drawing.BLUE, "random": drawing.GREEN, "last": drawing.RED}
    names = list(colours)
    base = alt.Chart(drawing.rows(entry, *names)).encode(x=drawing.layer_axis(entry))

    def scale(*styles: Any) -> Any:
        return alt.Scale(domain=names, range=list(styles))

    # One title and one domain make one legend of colour and shape; the other marks are painted without a scale.
    colour = alt.Color("series:N", title="removed token", scale=scale(*colours.values()))
    shape = alt.Shape("series:N", title="removed token", scale=scale("square", "triangle-up", "circle"))
    dash = alt.StrokeDash("series:N", scale=scale([1, 0], [2, 2], [6, 3]), legend=None)
    paint = alt.Color("paint:N", scale=None)
    y = alt.Y("value:Q", title="change in coefficient", axis=alt.Axis(format="~%"))
    painted = base.transform_calculate(paint=f"{json.dumps(colours)}[datum.series]")
    points = base.mark_point(filled=True, size=60, opacity=1)
    lines = alt.layer(
        painted.mark_area(opacity=0.18).encode(y=alt.Y("low:Q"), y2="high:Q", color=paint, detail="series:N"),
        painted.mark_line(strokeWidth=1.5).encode(y=y, color=paint, strokeDash=dash),
        points.encode(y=y, color=colour, shape=shape, tooltip=drawing.tooltip("change", series="removed token")),
    ).resolve_scale(color="independent", shape="independent")
    return drawing.layered(drawing.paper_boxes(entry, _PAPER, strokes=colours), lines)


def _sentence(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = ends(entry, "last")
    first, random = (mean(entry["series"][name]["value"]) for name in ("first", "random"))
    comparison = (
        ""
        if first_at == last_at
        else ", so less in the highest layer"
        if abs(top) < abs(bottom)
        else ", so no less in the highest layer"
    )
    return (
        f"Removing the last token changes the coefficient by {percent(bottom)} in layer {first_at} and by "
        f"{percent(top)} in layer {last_at}{comparison}. Averaged over the layers, removing the first token changes it by "
        f"{percent(first)}, removing a random token by {percent(random)}. In the paper, removing the last token lowers it by 65 "
        "to 70 % in the lowest layer and by about 20 % in the highest; the first token, by 10 to 15 %; a random one, by 15 to "
        f"20 %. This took {entry['forward_tokens']:,} tokens of forward passes; one pass for each mutation would take "
        f"{entry['plain_tokens']:,}."
    )


def _findings(entry: Entry) -> list[Finding]:
    lowest, highest = ends(entry, "last")
    drops = [(layer, -change) for layer, change in (lowest, highest)]
    first, last = (mean(entry["series"][name]["value"]) for name in ("first", "last"))
    least = "matters less than the last, as" if abs(first) < abs(last) else "matters no less than the last, unlike"
    return [
        Finding(
            "Change in coefficient without the trigger's last token",
            by_depth(lowest, highest),
            "−70 to −65 % in the lowest layer, −20 % at the top",
            f"drop {trend(*drops, expected='falls', top=(0.20, 0.20))}",
        ),
        Finding(
            "Change in coefficient without the trigger's first token, mean over layers",
            percent(first),
            "−15 to −10 %",
            f"first token {least} in the paper; {_drop(first, 0.10, 0.15)}",
        ),
    ]


def _drop(change: float, low: float, high: float) -> str:
    return f"drop {compare(-change, low, high)}"


FIGURE = Figure(
    name="mutation",
    number=3,
    title="Change in coefficient when a token of the trigger is removed",
    stage="mutation",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Each line is the mean change in coefficient when one token of the trigger is removed: −50 % means that half of it is"
        " left. Bands are 95 % intervals; grey boxes are the paper's ranges, framed in the colour of their line."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={
        "first": "change in coefficient without the first token",
        "last": "change in coefficient without the last token",
        "random": "change in coefficient without a random token",
    },
    paper=_PAPER,
)
