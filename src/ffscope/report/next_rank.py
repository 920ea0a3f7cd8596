"""Figure 5: the rank that a value gives the token after its key's top trigger."""

from typing import Any

import numpy as np

from ffscope.report.figure import PAPER_VOCABULARY, Entry, Figure
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import MEASURES, ends, peak

_LABEL = MEASURES["next_rank"]
_PAPER = {"next_rank": [(1, 7, 10_000.0, 15_000.0), (14, 16, 1.0, 2_000.0)]}


def _series(source: Source) -> Entry | None:
    columns = source.tables.columns("agreement", "layer", "next_rank")
    ranked = ~np.isnan(columns["next_rank"])  # a trigger may end its sentence
    if not ranked.any():
        return None
    columns = {name: column[ranked] for name, column in columns.items()}
    layers, series = by_layer(columns, "next_rank", source.spread)
    return {"layer": layers, "series": {"next_rank": series}, "vocabulary": source.model["vocab"]}


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    scale = alt.Scale(type="log", domain=[1, entry["vocabulary"]], nice=False)

    def y(field: str) -> Any:
        return alt.Y(field, title=_LABEL, scale=scale, axis=alt.Axis(format="~s", tickCount=5))

    factor = entry["vocabulary"] / PAPER_VOCABULARY  # the paper's ranks, scaled to this vocabulary
    paper = drawing.paper_boxes(entry, _PAPER, factor=factor, lowest=1.0)
    return drawing.boxes(entry, "next_rank", y, paper, percent=False)


def _sentence(entry: Entry) -> str:
    layer, best = peak(entry, "next_rank", min)
    (first_at, bottom), (last_at, top) = ends(entry, "next_rank")
    return (
        f"The median rank of the token after the top trigger is {bottom:,.0f} of {entry['vocabulary']:,} in layer "
        f"{first_at} and {top:,.0f} in layer {last_at}; the best layer is {layer} with {best:,.0f}. In the paper, the median "
        "is 10,000 to 15,000 of 270,000 in the lower layers and below 2,000 in the upper ones."
    )


FIGURE = Figure(
    name="next_rank",
    number=5,
    title="Rank of the top trigger's next token in the value",
    stage="agreement",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Box: the middle half of the memories, with the median as a black line. Thin line: 5 to 95 % of them. Rank 1 is the "
        "top token; the axis is logarithmic. Grey boxes: the paper, scaled to this vocabulary."
    ),
    sentence=_sentence,
    labels={"next_rank": _LABEL},
    paper=_PAPER,
)
