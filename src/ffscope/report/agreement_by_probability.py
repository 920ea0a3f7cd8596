"""Figure 6: agreement of values by how sure they are of their top token."""

import json
from itertools import pairwise
from typing import Any

import numpy as np

from ffscope.report.agreement import LABEL
from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source
from ffscope.report.wording import MEASURES, percent

_BINS, _ENOUGH = 12, 50  # bins to begin with, and memories that each must hold in the end


def _series(source: Source) -> Entry:
    columns = source.tables.columns("agreement", "max_prob", "agrees")
    probability, agrees = columns["max_prob"].astype(np.float64), columns["agrees"]
    bins = []
    edges = bin_edges(probability)
    for low, high in pairwise(edges):
        inside = (probability >= low) & ((probability < high) | (high == edges[-1]))
        bins.append({"from": low, "to": high, "memories": int(inside.sum()), **source.share(agrees[inside])})
    return {"bins": bins, "chance": 1 / source.model["vocab"]}


def bin_edges(values: np.ndarray) -> list[float]:
    """Edges of bins of equal width on a logarithmic scale, joined with their neighbours until each holds enough."""
    edges = np.geomspace(values.min(), values.max(), _BINS + 1)
    edges[0], edges[-1] = values.min(), values.max()
    kept, held = [float(edges[0])], 0
    for count, edge in zip(np.histogram(values, edges)[0] if edges[-1] > edges[0] else (), edges[1:], strict=False):
        held += int(count)
        if held >= _ENOUGH:
            kept.append(float(edge))
            held = 0
    if len(kept) == 1:
        return [kept[0], float(edges[-1])]
    return [*kept[:-1], float(edges[-1])]  # what is left over joins the last


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    rows = [
        {**row, "number": number, "bin": f"{row['from']:.3g} – {row['to']:.3g}"}
        for number, row in enumerate(entry["bins"])
    ]
    # By its number: two bins may be too narrow for their labels to differ.
    labels = f"{json.dumps([row['bin'] for row in rows])}[datum.value]"
    axis = alt.Axis(labelAngle=-40, labelExpr=labels)
    base = alt.Chart(alt.Data(values=rows)).encode(x=alt.X("number:O", title=MEASURES["max_prob"], axis=axis))
    tips = [
        alt.Tooltip("bin:N", title=MEASURES["max_prob"]),
        alt.Tooltip("memories:Q", format=","),
        *drawing.value_tooltip(LABEL, ".2%"),
    ]
    y = alt.Y("value:Q", title=LABEL, axis=alt.Axis(format="~%"))
    return drawing.layered(
        base.mark_bar(color=drawing.BLUE).encode(y=y, tooltip=tips),
        base.mark_rule(color=drawing.BLACK).encode(y=alt.Y("low:Q", title=LABEL), y2="high:Q"),
        base.mark_text(dy=-6, fontSize=10, baseline="bottom").encode(
            y=alt.Y("high:Q", title=LABEL), text=alt.Text("memories:Q", format=",")
        ),
    )


def _sentence(entry: Entry) -> str:
    lowest, highest = entry["bins"][0], entry["bins"][-1]
    if len(entry["bins"]) == 1:
        return (
            "The memories are too few, or their maximum probabilities too alike, to be parted by them: "
            f"{percent(lowest['value'])} of {lowest['memories']:,} agree."
        )
    return (
        f"Of the {lowest['memories']:,} least confident values {percent(lowest['value'])} agree, of the "
        f"{highest['memories']:,} most confident {percent(highest['value'])} (95 % interval {percent(highest['low'])} to "
        f"{percent(highest['high'])}). The number over a bar counts its memories; bins of fewer than 50 are joined with "
        "their neighbours. In the paper agreement rises from near 0 to about 95 % in the highest of eight bins."
    )


FIGURE = Figure(
    name="agreement_by_probability",
    number=6,
    title="Agreement by the value's maximum probability",
    stage="agreement",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Bar: share of memories that agree, among those whose value's highest probability is in the range below the bar. Whisker:"
        " 95 % interval. The number over a bar counts its memories."
    ),
    sentence=_sentence,
)
