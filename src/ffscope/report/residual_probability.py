"""Figure 10: the probability of the model's final top token in the residual."""

from typing import Any

from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import ends

_LABEL = "probability of the final top token in the residual"
_PAPER = {"residual_prob": [(1, 7, 0.0, 0.05), (14, 16, 0.60, 0.80)]}


def _series(source: Source) -> Entry:
    columns = source.tables.columns("refinement", "layer", "residual_prob", "residual_rank")
    layers, probability = by_layer(columns, "residual_prob", source.spread)
    _, rank = by_layer(columns, "residual_rank", source.spread)
    return {"layer": layers, "series": {"residual_prob": probability, "residual_rank": rank}}


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    def y(field: str) -> Any:
        return alt.Y(field, title="probability in the residual", scale=alt.Scale(domain=[0, 1]))

    return drawing.boxes(entry, "residual_prob", y, drawing.paper_boxes(entry, _PAPER))


def _sentence(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = ends(entry, "residual_prob")
    (_, low), (_, high) = ends(entry, "residual_rank")
    return (
        f"The median probability of the model's final top token is {bottom:.2g} in the residual of layer {first_at} and "
        f"{top:.2g} in that of layer {last_at}; its median rank is {low:,.0f} and {high:,.0f}. In the paper, the probability "
        "is near 0 up to layer 7 of 16 and 0.6 to 0.8 from layer 14 on."
    )


FIGURE = Figure(
    name="residual_probability",
    number=10,
    title="Probability of the final top token in the residual",
    stage="refinement",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Box: the middle half of the examples, with the median as a black line. Thin line: 5 to 95 % of them. "
        "Grey boxes: the paper."
    ),
    sentence=_sentence,
    labels={"residual_prob": _LABEL, "residual_rank": "rank of the final top token in the residual (1 = top)"},
    paper=_PAPER,
)
