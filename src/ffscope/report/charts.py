"""The paper's figures 2 to 11, each an altair chart made from an entry of the summary."""

import json
from collections.abc import Callable
from typing import Any

import altair as alt

from ffscope.cases import CASES
from ffscope.report import patterns
from ffscope.report.labels import LABELS
from ffscope.report.paper import PAPER
from ffscope.tokens import visible

Entry = dict[str, Any]
_WIDTH, _HEIGHT = 460, 240
# Okabe and Ito's colours, which the colour-blind tell apart; their lightness differs too, for print without colour.
BLUE, _SKY, _YELLOW, _BLACK, _RED, _GREEN, _GREY = (
    "#0072B2",
    "#56B4E9",
    "#F0E442",
    "#000000",
    "#D55E00",
    "#009E73",
    "#999999",
)
_REMOVED = {"first": BLUE, "random": _GREEN, "last": _RED}
_CASE_COLOURS: dict[str, str] = dict(zip(CASES, (BLUE, _SKY, _YELLOW, _BLACK), strict=True))
_LABEL_COLOURS = dict(zip(patterns.LABELS, (BLUE, _YELLOW, _GREEN, "#d9d9d9"), strict=True))


def titled(chart: Any, title: str) -> dict[str, Any]:
    """A chart with its title, as all figures of ffscope look, as a vega-lite specification."""
    heading = alt.Title(title, anchor="start", fontWeight="normal", fontSize=13)
    return _styled(chart.properties(title=heading)).to_dict()


def _styled(chart: Any) -> Any:
    return (
        chart.configure(background="white", font="sans-serif")
        .configure_axis(labelFontSize=11, titleFontSize=12, titleFontWeight="normal", gridColor="#e6e6e6")
        .configure_legend(labelFontSize=11, titleFontSize=11, orient="top", symbolSize=90)
        .configure_view(stroke=None)
    )


def _axis_layers(entry: Entry) -> list[int]:
    """The layers on the axis: those of the entry, or of all panels that it is compared with."""
    return entry["axis_layers"] if "axis_layers" in entry else entry["layer"]


def _layer_axis(entry: Entry, field: str = "layer") -> Any:
    layers = _axis_layers(entry)
    every = max(1, round((max(layers) - min(layers)) / 20))  # twenty labels fit
    axis = alt.Axis(values=layers[::every], format="d", grid=False)
    scale = alt.Scale(domain=[min(layers) - 0.6, max(layers) + 0.6], nice=False)
    return alt.X(f"{field}:Q", title="layer", scale=scale, axis=axis)


def _bar_width(entry: Entry) -> float:
    layers = _axis_layers(entry)
    return 0.7 * _WIDTH / (max(layers) - min(layers) + 1.2)


def _rows(entry: Entry, *names: str) -> Any:
    """The series of an entry, one row for each layer and series."""
    rows = [
        {"layer": layer, "series": name, **{part: numbers[i] for part, numbers in entry["series"][name].items()}}
        for name in names
        for i, layer in enumerate(entry["layer"])
    ]
    return alt.Data(values=rows)


def _paper(name: str, entry: Entry, *, factor: float = 1.0, lowest: float = -1.0) -> Any:
    """What the paper states, as grey boxes at the same relative depth; a single number is a thin one."""
    step = (entry["model_layers"] - 1) / (PAPER["layers"] - 1)  # 0 for one layer, which is at no depth
    rows = [
        {
            "from": (start - 1) * step - 0.45 * max(step, 0.5),
            "to": (end - 1) * step + 0.45 * max(step, 0.5),
            "low": max(low * factor, lowest),
            "high": high * factor,
            "source": "stated in the paper",
            "stroke": _REMOVED.get(series, "#555555"),
        }
        for series, ranges in PAPER[name].items()
        for start, end, low, high in (ranges if step else ())
    ]
    colour = alt.Color(
        "source:N", scale=alt.Scale(domain=["stated in the paper"], range=[_GREY]), legend=alt.Legend(title=None)
    )
    base = alt.Chart(alt.Data(values=rows))
    tip = [alt.Tooltip("low:Q", title="paper, from", format=".4~g"), alt.Tooltip("high:Q", title="to", format=".4~g")]
    stroke = alt.Stroke("stroke:N", scale=None)
    box = base.mark_rect(opacity=1, fillOpacity=0.25, strokeWidth=1.2, clip=True)
    return box.encode(
        x=_layer_axis(entry, "from"), x2="to:Q", y="low:Q", y2="high:Q", color=colour, stroke=stroke, tooltip=tip
    )


def _tooltip(value: str, *, percent: bool = True, series: str | None = None) -> list[Any]:
    """Layer, value and interval of a mark, and which series it is of where there are several."""
    form = ".2%" if percent else ",.4~g"
    return [
        alt.Tooltip("layer:Q", format="d"),
        *([] if series is None else [alt.Tooltip("series:N", title=series)]),
        alt.Tooltip("value:Q", title=value, format=form),
        alt.Tooltip("low:Q", title="95 % interval, from", format=form),
        alt.Tooltip("high:Q", title="to", format=form),
    ]


def _layered(*charts: Any) -> Any:
    independent = alt.layer(*charts).resolve_scale(color="independent", shape="independent")
    return independent.properties(width=_WIDTH, height=_HEIGHT)


def _share_bars(name: str, entry: Entry, *, chance: float | None = None) -> Any:
    """Bars of a share by layer, with their intervals."""
    axis = LABELS[name]
    base = alt.Chart(_rows(entry, name)).encode(x=_layer_axis(entry))
    y = alt.Y("value:Q", title=axis, axis=alt.Axis(format="~%"))
    bars = base.mark_bar(color=BLUE, size=_bar_width(entry)).encode(y=y, tooltip=_tooltip(axis))
    whiskers = base.mark_rule(color=_BLACK).encode(y=alt.Y("low:Q", title=axis), y2="high:Q")
    layers = [bars, _paper(name, entry), whiskers]
    if chance is not None:
        rule = alt.Chart(alt.Data(values=[{"chance": chance}])).mark_rule(color=_RED, strokeDash=[4, 3])
        layers.append(rule.encode(y="chance:Q"))
    return _layered(*layers)


def _boxes(series: str, entry: Entry, y: Any, paper: Any, *, percent: bool = True) -> Any:
    """Boxes by layer: quartiles, the median with its interval, and 5 % to 95 %."""
    base = alt.Chart(_rows(entry, series)).encode(x=_layer_axis(entry))
    quantiles = [
        alt.Tooltip(f"q{share}:Q", title=f"{int(share)} % are below", format=".2%" if percent else ",.4~g")
        for share in ("05", "25", "75", "95")
    ]
    return _layered(
        base.mark_rule(color=_BLACK).encode(y=y("q05:Q"), y2="q95:Q"),
        base.mark_bar(color=_SKY, size=_bar_width(entry), stroke=BLUE).encode(
            y=y("q25:Q"), y2="q75:Q", tooltip=[*_tooltip("median", percent=percent), *quantiles]
        ),
        paper,
        base.mark_tick(color=_BLACK, thickness=2.5, size=_bar_width(entry), orient="horizontal").encode(y=y("value:Q")),
    )


def _mutation(entry: Entry) -> Any:
    names = list(_REMOVED)
    base = alt.Chart(_rows(entry, *names)).encode(x=_layer_axis(entry))

    def scale(*styles: Any) -> Any:
        return alt.Scale(domain=names, range=list(styles))

    # One title and one domain make one legend of colour and shape; the other marks are painted without a scale.
    colour = alt.Color("series:N", title="removed token", scale=scale(*_REMOVED.values()))
    shape = alt.Shape("series:N", title="removed token", scale=scale("square", "triangle-up", "circle"))
    dash = alt.StrokeDash("series:N", scale=scale([1, 0], [2, 2], [6, 3]), legend=None)
    paint = alt.Color("paint:N", scale=None)
    y = alt.Y("value:Q", title="change in coefficient", axis=alt.Axis(format="~%"))
    painted = base.transform_calculate(paint=f"{json.dumps(_REMOVED)}[datum.series]")
    points = base.mark_point(filled=True, size=60, opacity=1)
    lines = alt.layer(
        painted.mark_area(opacity=0.18).encode(y=alt.Y("low:Q"), y2="high:Q", color=paint, detail="series:N"),
        painted.mark_line(strokeWidth=1.5).encode(y=y, color=paint, strokeDash=dash),
        points.encode(y=y, color=colour, shape=shape, tooltip=_tooltip("change", series="removed token")),
    ).resolve_scale(color="independent", shape="independent")
    return _layered(_paper("mutation", entry), lines)


def _agreement(entry: Entry) -> Any:
    return _share_bars("agreement", entry, chance=entry["chance"])


def _next_rank(entry: Entry) -> Any:
    scale = alt.Scale(type="log", domain=[1, entry["vocabulary"]], nice=False)

    def y(field: str) -> Any:
        return alt.Y(field, title=LABELS["next_rank"], scale=scale, axis=alt.Axis(format="~s", tickCount=5))

    factor = entry["vocabulary"] / PAPER["vocabulary"]
    paper = _paper("next_rank", entry, factor=factor, lowest=1.0)  # scaled to this vocabulary
    return _boxes("next_rank", entry, y, paper, percent=False)


def _agreement_by_probability(entry: Entry) -> Any:
    rows = [
        {**row, "number": number, "bin": f"{row['from']:.3g} – {row['to']:.3g}"}
        for number, row in enumerate(entry["bins"])
    ]
    # By its number: two bins may be too narrow for their labels to differ.
    labels = f"{json.dumps([row['bin'] for row in rows])}[datum.value]"
    axis = alt.Axis(labelAngle=-40, labelExpr=labels)
    base = alt.Chart(alt.Data(values=rows)).encode(x=alt.X("number:O", title=LABELS["max_prob"], axis=axis))
    tips = [
        alt.Tooltip("bin:N", title=LABELS["max_prob"]),
        alt.Tooltip("memories:Q", format=","),
        alt.Tooltip("value:Q", title=LABELS["agreement"], format=".2%"),
        alt.Tooltip("low:Q", title="95 % interval, from", format=".2%"),
        alt.Tooltip("high:Q", title="to", format=".2%"),
    ]
    y = alt.Y("value:Q", title=LABELS["agreement"], axis=alt.Axis(format="~%"))
    return _layered(
        base.mark_bar(color=BLUE).encode(y=y, tooltip=tips),
        base.mark_rule(color=_BLACK).encode(y=alt.Y("low:Q", title=LABELS["agreement"]), y2="high:Q"),
        base.mark_text(dy=-6, fontSize=10, baseline="bottom").encode(
            y=alt.Y("high:Q", title=LABELS["agreement"]), text=alt.Text("memories:Q", format=",")
        ),
    )


def _active(entry: Entry) -> Any:
    def y(field: str) -> Any:
        return alt.Y(field, title=LABELS["active"], axis=alt.Axis(format="~%"))

    boxes = _boxes("active", entry, y, _paper("active", entry))
    if not any(entry["signed"]):
        return boxes
    rows = [
        {"layer": layer, "effective": value / memories, "what": LABELS["effective"]}
        for layer, value, memories in zip(
            entry["layer"], entry["series"]["effective"]["value"], entry["memories"], strict=True
        )
    ]
    colour = alt.Color("what:N", scale=alt.Scale(range=[_RED]), legend=alt.Legend(title=None))
    points = alt.Chart(alt.Data(values=rows)).mark_point(shape="diamond", filled=True, size=70, opacity=1)
    tips = [alt.Tooltip("layer:Q", format="d"), alt.Tooltip("effective:Q", title=LABELS["effective"], format=".2%")]
    return _layered(
        boxes,
        points.encode(x=_layer_axis(entry), y=alt.Y("effective:Q", title=LABELS["active"]), color=colour, tooltip=tips),
    )


def _zero_agreement(entry: Entry) -> Any:
    return _share_bars("zero_agreement", entry)


def _residual_agreement(entry: Entry) -> Any:
    return _share_bars("residual_agreement", entry)


def _residual_probability(entry: Entry) -> Any:
    def y(field: str) -> Any:
        return alt.Y(field, title=LABELS["residual_prob"], scale=alt.Scale(domain=[0, 1]))

    return _boxes("residual_prob", entry, y, _paper("residual_probability", entry))


def _patterns(entry: Entry) -> Any:
    """One panel for every annotator, all over the same layers: some people look at a few only."""
    annotators = entry["annotators"]
    layers = sorted({layer for shares in annotators.values() for layer in shares["layer"]})
    panels = []
    for name, shares in annotators.items():
        of_one = {**entry, **shares, "axis_layers": layers}
        panel = _stacked(of_one, _LABEL_COLOURS, "share of prefixes", "pattern", "patterns")
        panels.append(panel.properties(title=visible(name)) if len(annotators) > 1 else panel)
    return panels[0] if len(panels) == 1 else alt.concat(*panels, columns=2)


def _cases(entry: Entry) -> Any:
    return _stacked(entry, _CASE_COLOURS, "share of examples", "case", "cases")


def _stacked(entry: Entry, colours: dict[str, str], axis: str, legend: str, paper: str) -> Any:
    """Bars by layer that add up to all."""
    names = list(colours)
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=list(colours.values())),
        legend=alt.Legend(title=legend),
    )
    bars = alt.Chart(_rows(entry, *names)).transform_calculate(order=f"indexof({names}, datum.series)")
    return _layered(
        bars.mark_bar(size=_bar_width(entry), stroke="white", strokeWidth=0.5).encode(
            x=_layer_axis(entry),
            y=alt.Y("value:Q", title=axis, stack="zero", axis=alt.Axis(format="~%"), scale=alt.Scale(domain=[0, 1])),
            color=colour,
            order="order:Q",
            tooltip=_tooltip(axis, series=legend),
        ),
        _paper(paper, entry),
    )


CHARTS: dict[str, Callable[[Entry], Any]] = {
    "patterns": _patterns,
    "mutation": _mutation,
    "agreement": _agreement,
    "next_rank": _next_rank,
    "agreement_by_probability": _agreement_by_probability,
    "active": _active,
    "zero_agreement": _zero_agreement,
    "residual_agreement": _residual_agreement,
    "residual_probability": _residual_probability,
    "cases": _cases,
}
