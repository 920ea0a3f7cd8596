"""Parts of figures as altair charts: axes, bars, boxes and the paper's ranges, from an entry of the summary."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import altair as alt

from ffscope.report.figure import PAPER_LAYERS, Entry, Stated

_WIDTH, _HEIGHT = 460, 240
# Okabe and Ito's colours, distinct for the colour-blind; their lightness differs too, for print without colour.
BLUE, SKY, YELLOW, BLACK, RED, GREEN, GREY = (
    "#0072B2",
    "#56B4E9",
    "#F0E442",
    "#000000",
    "#D55E00",
    "#009E73",
    "#999999",
)
PALE = "#d9d9d9"
Paper = Mapping[str, Sequence[Stated]]


def titled(chart: Any, title: str) -> dict[str, Any]:
    """A chart with its title in the common style, as a vega-lite specification."""
    heading = alt.Title(title, anchor="start", fontWeight="normal", fontSize=13)
    spec = _styled(chart.properties(title=heading)).to_dict()
    # altair has no option for it. Readers' fonts may be wider than the one measured here, so legends need room.
    spec["config"]["legend"]["layout"] = {"margin": 30}
    return spec


def _styled(chart: Any) -> Any:
    return (
        chart.configure(background="white", font="sans-serif")
        .configure_axis(labelFontSize=11, titleFontSize=12, titleFontWeight="normal", gridColor="#e6e6e6")
        .configure_legend(labelFontSize=11, titleFontSize=11, orient="top", symbolSize=90, columnPadding=24)
        .configure_view(stroke=None)
    )


def _axis_layers(entry: Entry) -> list[int]:
    """The layers on the axis: those of the entry, or of all its panels."""
    return entry["axis_layers"] if "axis_layers" in entry else entry["layer"]


def layer_axis(entry: Entry, field: str = "layer") -> Any:
    """The x-axis of layers."""
    layers = _axis_layers(entry)
    every = max(1, round((max(layers) - min(layers)) / 20))  # twenty labels fit
    axis = alt.Axis(values=layers[::every], format="d", grid=False)
    scale = alt.Scale(domain=[min(layers) - 0.6, max(layers) + 0.6], nice=False)
    return alt.X(f"{field}:Q", title="layer", scale=scale, axis=axis)


def bar_width(entry: Entry) -> float:
    """The width of a bar, with a gap to the next layer's."""
    layers = _axis_layers(entry)
    return 0.7 * _WIDTH / (max(layers) - min(layers) + 1.2)


def rows(entry: Entry, *names: str) -> Any:
    """The series of an entry, one row per layer and series."""
    values = [
        {"layer": layer, "series": name, **{part: numbers[i] for part, numbers in entry["series"][name].items()}}
        for name in names
        for i, layer in enumerate(entry["layer"])
    ]
    return alt.Data(values=values)


def paper_boxes(
    entry: Entry, paper: Paper, *, factor: float = 1.0, lowest: float = -1.0, strokes: Mapping[str, str] | None = None
) -> Any:
    """The paper's ranges as grey boxes at the same relative depth; a single number is a thin box. None without ranges."""
    if not paper:
        return None
    step = (entry["model_layers"] - 1) / (PAPER_LAYERS - 1)  # 0 for one layer, which has no depth
    stated = [
        {
            "from": (start - 1) * step - 0.45 * max(step, 0.5),
            "to": (end - 1) * step + 0.45 * max(step, 0.5),
            "low": max(low * factor, lowest),
            "high": high * factor,
            "source": "stated in the paper",
            "stroke": (strokes or {}).get(series, "#555555"),
        }
        for series, ranges in paper.items()
        for start, end, low, high in (ranges if step else ())
    ]
    colour = alt.Color(
        "source:N", scale=alt.Scale(domain=["stated in the paper"], range=[GREY]), legend=alt.Legend(title=None)
    )
    base = alt.Chart(alt.Data(values=stated))
    tip = [alt.Tooltip("low:Q", title="paper, from", format=".4~g"), alt.Tooltip("high:Q", title="to", format=".4~g")]
    stroke = alt.Stroke("stroke:N", scale=None)
    box = base.mark_rect(opacity=1, fillOpacity=0.25, strokeWidth=1.2, clip=True)
    return box.encode(
        x=layer_axis(entry, "from"), x2="to:Q", y="low:Q", y2="high:Q", color=colour, stroke=stroke, tooltip=tip
    )


def value_tooltip(value: str, form: str) -> list[Any]:
    """Value and interval of a mark."""
    return [
        alt.Tooltip("value:Q", title=value, format=form),
        alt.Tooltip("low:Q", title="95 % interval, from", format=form),
        alt.Tooltip("high:Q", title="to", format=form),
    ]


def tooltip(value: str, *, percent: bool = True, series: str | None = None) -> list[Any]:
    """Layer, value and interval of a mark, and its series if there are several."""
    return [
        alt.Tooltip("layer:Q", format="d"),
        *([] if series is None else [alt.Tooltip("series:N", title=series)]),
        *value_tooltip(value, ".2%" if percent else ",.4~g"),
    ]


def layered(*charts: Any) -> Any:
    """Charts on top of each other with independent colours, in the common size; None is skipped."""
    layers = [chart for chart in charts if chart is not None]
    independent = alt.layer(*layers).resolve_scale(color="independent", shape="independent")
    return independent.properties(width=_WIDTH, height=_HEIGHT)


def share_bars(
    entry: Entry, series: str, label: str, paper: Paper | None = None, *, chance: float | None = None
) -> Any:
    """Bars of a share by layer, with intervals and the label on the axis. `chance` is a dashed line."""
    base = alt.Chart(rows(entry, series)).encode(x=layer_axis(entry))
    y = alt.Y("value:Q", title=label, axis=alt.Axis(format="~%"))
    bars = base.mark_bar(color=BLUE, size=bar_width(entry)).encode(y=y, tooltip=tooltip(label))
    whiskers = base.mark_rule(color=BLACK).encode(y=alt.Y("low:Q", title=label), y2="high:Q")
    layers = [bars, paper_boxes(entry, paper or {}), whiskers]
    if chance is not None:
        rule = alt.Chart(alt.Data(values=[{"chance": chance}])).mark_rule(color=RED, strokeDash=[4, 3])
        layers.append(rule.encode(y="chance:Q"))
    return layered(*layers)


def boxes(entry: Entry, series: str, y: Callable[[str], Any], paper: Any = None, *, percent: bool = True) -> Any:
    """Boxes by layer: quartiles, median, and 5 % to 95 %.

    `y` gives the y-axis's encoding of a field; `paper` comes from `paper_boxes`.
    """
    base = alt.Chart(rows(entry, series)).encode(x=layer_axis(entry))
    quantiles = [
        alt.Tooltip(f"q{share}:Q", title=f"{int(share)} % are below", format=".2%" if percent else ",.4~g")
        for share in ("05", "25", "75", "95")
    ]
    return layered(
        base.mark_rule(color=BLACK).encode(y=y("q05:Q"), y2="q95:Q"),
        base.mark_bar(color=SKY, size=bar_width(entry), stroke=BLUE).encode(
            y=y("q25:Q"), y2="q75:Q", tooltip=[*tooltip("median", percent=percent), *quantiles]
        ),
        paper,
        base.mark_tick(color=BLACK, thickness=2.5, size=bar_width(entry), orient="horizontal").encode(y=y("value:Q")),
    )


def stacked(entry: Entry, colours: Mapping[str, str], axis: str, legend: str, paper: Paper | None = None) -> Any:
    """Stacked bars by layer, one part for each series with a colour."""
    names = list(colours)
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=list(colours.values())),
        legend=alt.Legend(title=legend),
    )
    bars = alt.Chart(rows(entry, *names)).transform_calculate(order=f"indexof({names}, datum.series)")
    return layered(
        bars.mark_bar(size=bar_width(entry), stroke="white", strokeWidth=0.5).encode(
            x=layer_axis(entry),
            y=alt.Y("value:Q", title=axis, stack="zero", axis=alt.Axis(format="~%"), scale=alt.Scale(domain=[0, 1])),
            color=colour,
            order="order:Q",
            tooltip=tooltip(axis, series=legend),
        ),
        paper_boxes(entry, paper or {}),
    )


def dots(
    entry: Entry,
    colours: Mapping[str, str],
    axis: str,
    *,
    form: str = ".2f",
    scale: Any = None,
    rule: float | None = None,
    legend: Mapping[str, Any] | None = None,
) -> Any:
    """Points by layer with their intervals, side by side for each series with a colour. `rule` is a dashed line."""
    names = list(colours)
    step = bar_width(entry) / max(1, len(names))
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=names, range=list(colours.values())),
        legend=alt.Legend(title=None, **(legend or {})),
    )
    layers = []
    if rule is not None:
        line = alt.Chart(alt.Data(values=[{"rule": rule}])).mark_rule(color=GREY, strokeDash=[4, 3])
        layers.append(line.encode(y=alt.Y("rule:Q", title=axis)))
    for number, name in enumerate(names):
        base = alt.Chart(rows(entry, name)).transform_filter("isValid(datum.value)")
        offset = (number - (len(names) - 1) / 2) * step
        tips = [alt.Tooltip("layer:Q", format="d"), alt.Tooltip("series:N", title=""), *value_tooltip(axis, form)]
        y: dict[str, Any] = {"title": axis, **({} if scale is None else {"scale": scale})}
        x: dict[str, Any] = {"x": layer_axis(entry), "xOffset": alt.value(offset)}
        layers.append(base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", **y), y2="high:Q", color=colour, **x))
        layers.append(
            base.mark_point(filled=True, size=45, opacity=1).encode(
                y=alt.Y("value:Q", **y), color=colour, shape=alt.Shape("series:N", legend=None), tooltip=tips, **x
            )
        )
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT)


def named_dots(points: Sequence[Mapping[str, Any]], axis: str, *, form: str = ".2f", colours: Mapping[str, str]) -> Any:
    """One line per name: the points with that name and their intervals. `colours` are by the points' `series`."""
    names = list(dict.fromkeys(point["name"] for point in points))
    longest = max(map(len, names), default=0)  # its room in pixels is for a reader's wide font, as for legends above
    base = alt.Chart(alt.Data(values=list(points))).encode(
        y=alt.Y("name:N", title=None, sort=names, axis=alt.Axis(labelLimit=320, minExtent=6.6 * longest)),
        yOffset=alt.YOffset("series:N", sort=list(colours)),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=list(colours), range=list(colours.values())),
            legend=alt.Legend(title=None) if len(colours) > 1 else None,
        ),
    )
    tips = [alt.Tooltip("name:N", title=""), *value_tooltip(axis, form)]
    return alt.layer(
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=axis), x2="high:Q"),
        base.mark_point(filled=True, size=70, opacity=1).encode(x=alt.X("value:Q", title=axis), tooltip=tips),
    ).properties(width=_WIDTH, height=28 * len(names))


def lines(
    layers: Sequence[int],
    series: Mapping[str, Sequence[float | None]],
    label: str,
    *,
    colours: Mapping[str, str],
    percent: bool = False,
    log: bool = False,
) -> Any:
    """One line over the layers for each series with a colour; numbers that are None, or have no logarithm, are left out."""
    points = [
        {"layer": layer, "series": name, "value": value}
        for name, values in series.items()
        for layer, value in zip(layers, values, strict=True)
        if value is not None and (value > 0 or not log)
    ]
    scale = alt.Scale(type="log") if log else alt.Scale(zero=True)
    axis = alt.Axis(format="~%" if percent else ",~g", tickCount=5)
    base = alt.Chart(alt.Data(values=points)).encode(
        x=layer_axis({"layer": list(layers)}),
        y=alt.Y("value:Q", title=label, scale=scale, axis=axis),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=list(colours), range=list(colours.values())),
            legend=alt.Legend(title=None),
        ),
        tooltip=[
            alt.Tooltip("series:N", title=""),
            alt.Tooltip("layer:Q", format="d"),
            alt.Tooltip("value:Q", title=label, format=".2%" if percent else ",.4~g"),
        ],
    )
    marks = base.mark_line(strokeWidth=2) + base.mark_point(filled=True, size=40, opacity=1)
    return marks.properties(width=_WIDTH * 0.62, height=_HEIGHT * 0.75)
