"""Histograms of the measures of one layer's memories, in the style of the report's figures."""

from typing import Any

import numpy as np

from ffscope.queries.layer import LayerPage
from ffscope.report.wording import MEASURES
from ffscope.stages.registry import measures

_BINS = 30


def layer_histograms(page: LayerPage) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, title and specification of every histogram that the layer has data for."""
    histograms = []
    for name, (_, measure) in measures().items():
        if measure.histogram is None:
            continue
        title, scale = measure.histogram
        numbers = np.array([number for number in page.columns.get(name, ()) if number is not None], dtype=np.float64)
        numbers = numbers[numbers > 0] if scale == "log" else numbers
        if len(numbers):
            histograms.append((name, title, _histogram(MEASURES.get(name, measure.label), title, numbers, scale)))
    return histograms


def _histogram(label: str, title: str, numbers: np.ndarray, scale: Any) -> dict[str, Any]:
    """Binned here, so that a page receives bins and not thousands of numbers."""
    import altair as alt

    from ffscope.report.drawing import BLUE, titled

    low, high = float(numbers.min()), float(numbers.max())
    if low == high:
        low, high = (low / 2, high * 2) if scale == "log" else (low - 0.5, high + 0.5)
    edges = np.geomspace(low, high, _BINS + 1) if scale == "log" else np.linspace(low, high, _BINS + 1)
    counts, _ = np.histogram(np.clip(numbers, edges[0], edges[-1]), edges)
    rows = [
        {"from": float(start), "to": float(end), "memories": int(count)}
        for start, end, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    tip = [alt.Tooltip(f"{field}:Q", format=".3~g") for field in ("from", "to", "memories")]
    bars = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar(color=BLUE, binSpacing=0)
        .encode(
            x=alt.X(
                "from:Q",
                title=label,
                scale=alt.Scale(type=scale, nice=False),
                axis=alt.Axis(format="~g", tickCount=5, grid=False),
            ),
            x2="to:Q",
            y=alt.Y("memories:Q", title="memories"),
            y2=alt.Y2Datum(0),  # without it, bars over a range have no baseline
            tooltip=tip,
        )
    )
    return titled(bars.properties(width=320, height=160), title)
