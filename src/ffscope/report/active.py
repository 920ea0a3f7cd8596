"""Figure 7: how many memories of a layer are active on an example."""

from typing import Any

from ffscope.queries.series import sign_shares
from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import peak, percent

_ACTIVE = "active memories (share of the layer)"
_EFFECTIVE = "memories that make up 90 % of the layer's update"
_PAPER = {"active": [(1, 5, 0.40, 0.50), (10, 10, 0.10, 0.15), (11, 16, 0.15, 0.20)]}


def _series(source: Source) -> Entry:
    columns = source.tables.columns("composition", "layer", "active_fraction", "effective")
    layers, active = by_layer(columns, "active_fraction", source.spread)
    _, effective = by_layer(columns, "effective", source.spread)
    negative, zero = _signs(source, layers)
    return {
        "layer": layers,
        "series": {"active": active, "effective": effective},
        "memories": [source.model["memories"][layer] for layer in layers],
        "negative_share": negative,
        "zero_share": zero,
        "signed": [None if below is None else below > 0 or at == 0 for below, at in zip(negative, zero, strict=True)],
    }


def _signs(source: Source, layers: list[int]) -> tuple[list[float | None], list[float | None]]:
    """The shares of coefficients below 0 and at 0, by layer. None for a layer that was not searched."""
    columns = sign_shares(source.tables)
    searched = columns["layer"].tolist()
    below, at = (dict(zip(searched, columns[name].tolist(), strict=True)) for name in ("negative", "zero"))
    return [below.get(layer) for layer in layers], [at.get(layer) for layer in layers]


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    def y(field: str) -> Any:
        return alt.Y(field, title=_ACTIVE, axis=alt.Axis(format="~%"))

    boxes = drawing.boxes(entry, "active", y, drawing.paper_boxes(entry, _PAPER))
    if not any(entry["signed"]):
        return boxes
    rows = [
        {"layer": layer, "effective": value / memories, "what": _EFFECTIVE}
        for layer, value, memories in zip(
            entry["layer"], entry["series"]["effective"]["value"], entry["memories"], strict=True
        )
    ]
    colour = alt.Color("what:N", scale=alt.Scale(range=[drawing.RED]), legend=alt.Legend(title=None))
    points = alt.Chart(alt.Data(values=rows)).mark_point(shape="diamond", filled=True, size=70, opacity=1)
    tips = [alt.Tooltip("layer:Q", format="d"), alt.Tooltip("effective:Q", title=_EFFECTIVE, format=".2%")]
    x = drawing.layer_axis(entry)
    return drawing.layered(boxes, points.encode(x=x, y=alt.Y("effective:Q", title=_ACTIVE), color=colour, tooltip=tips))


def _sentence(entry: Entry) -> str:
    (low_at, low), (high_at, high) = peak(entry, "active", min), peak(entry, "active")
    text = (
        f"At the median example, the share of active memories is lowest in layer {low_at} ({percent(low)}) and highest in "
        f"layer {high_at} ({percent(high)}). In the paper it is 10 to 50 %, lowest in layer 10 of 16."
    )
    return text + _effective(entry) if any(entry["signed"]) else text


def _effective(entry: Entry) -> str:
    (low_at, low), (high_at, high) = peak(entry, "effective", min), peak(entry, "effective")
    return (
        " In this model coefficients can be negative or are never exactly 0, so “active” says little: a negative coefficient "
        "has an effect too, and a tiny one almost none. The diamonds show the effective number of memories instead: how many "
        f"make up 90 % of Σ|coefficient|·‖value‖. Its median is {low:,.0f} in layer {low_at}, the lowest, and {high:,.0f} of "
        f"{entry['memories'][entry['layer'].index(high_at)]:,} in layer {high_at}, the highest."
    )


FIGURE = Figure(
    name="active",
    number=7,
    title="Active memories per example",
    stage="composition",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Box: the middle half of the examples, with the median as a black line. Thin line: 5 to 95 % of them. "
        "Grey boxes: the paper."
    ),
    sentence=_sentence,
    labels={"active": _ACTIVE, "effective": _EFFECTIVE},
    terms={"active": "A memory is active on an example if its coefficient is above 0."},
    paper=_PAPER,
)
