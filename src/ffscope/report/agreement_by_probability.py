"""Figure 6: agreement of values by the probability of their top token."""

import json
from itertools import pairwise
from typing import Any

import numpy as np

from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source
from ffscope.report.wording import MEASURES, percent

_AXIS = "share of memories that agree"
_BINS, _ENOUGH = 12, 50  # bins to begin with; the fewest memories in a bin after joining


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
    """Edges of bins of equal width on a logarithmic scale, joined with their neighbours until each has enough values."""
    edges = np.geomspace(values.min(), values.max(), _BINS + 1)
    edges[0], edges[-1] = values.min(), values.max()
    joined, members = [float(edges[0])], 0
    for count, edge in zip(np.histogram(values, edges)[0] if edges[-1] > edges[0] else (), edges[1:], strict=False):
        members += int(count)
        if members >= _ENOUGH:
            joined.append(float(edge))
            members = 0
    if len(joined) == 1:
        return [joined[0], float(edges[-1])]
    return [*joined[:-1], float(edges[-1])]  # a remainder joins the last bin


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    rows = [
        {**row, "number": number, "bin": f"{row['from']:.3g} – {row['to']:.3g}"}
        for number, row in enumerate(entry["bins"])
    ]
    # By its number: two bins may be too narrow for their labels to differ.
    labels = f"{json.dumps([row['bin'] for row in rows])}[datum.value]"
    axis = alt.Axis(labelAngle=-40, labelExpr=labels, titlePadding=16)
    base = alt.Chart(alt.Data(values=rows)).encode(x=alt.X("number:O", title=MEASURES["max_prob"], axis=axis))
    tips = [
        alt.Tooltip("bin:N", title=MEASURES["max_prob"]),
        alt.Tooltip("memories:Q", format=","),
        *drawing.value_tooltip(_AXIS, ".2%"),
    ]
    y = alt.Y("value:Q", title=_AXIS, axis=alt.Axis(format="~%"))
    return drawing.layered(
        base.mark_bar(color=drawing.BLUE).encode(y=y, tooltip=tips),
        base.mark_rule(color=drawing.BLACK).encode(y=alt.Y("low:Q", title=_AXIS), y2="high:Q"),
        base.mark_text(dy=-6, fontSize=10, baseline="bottom").encode(
            y=alt.Y("high:Q", title=_AXIS), text=alt.Text("memories:Q", format=",")
        ),
    )


def _sentence(entry: Entry) -> str:
    lowest, highest = entry["bins"][0], entry["bins"][-1]
    if len(entry["bins"]) == 1:
        return (
            "There are too few memories, or their highest probabilities are too similar, for more than one bin: "
            f"{percent(lowest['value'])} of {lowest['memories']:,} memories agree."
        )
    return (
        f"{percent(lowest['value'])} of the {lowest['memories']:,} least confident values agree, and "
        f"{percent(highest['value'])} of the {highest['memories']:,} most confident ones (95 % interval "
        f"{percent(highest['low'])} to {percent(highest['high'])}). Bins of fewer than {_ENOUGH} memories are joined with "
        "their neighbours. In the paper, agreement rises from near 0 to about 95 % in the highest of eight bins."
    )


FIGURE = Figure(
    name="agreement_by_probability",
    number=6,
    title="Agreement by the highest probability in the value's distribution",
    stage="agreement",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Bar: share of memories that agree, among those whose value's highest probability is in the range below the bar. Whisker:"
        " 95 % interval. The number over a bar counts its memories."
    ),
    sentence=_sentence,
)
