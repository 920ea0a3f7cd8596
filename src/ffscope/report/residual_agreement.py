"""Figure 9: how often the residual already has the model's final top token."""

from typing import Any

from ffscope.queries.series import residual_predictions
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import by_depth, ends, percent, trend

_LABEL = "examples where the residual has the final top token"
_PAPER = {"residual_agreement": [(1, 1, 0.0, 0.02), (2, 9, 0.20, 0.40), (16, 16, 0.95, 0.95)]}


def _series(source: Source) -> Entry:
    layers, series = by_layer(residual_predictions(source.tables), "same", source.share)
    return {"layer": layers, "series": {"residual_agreement": series}}


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    return drawing.share_bars(entry, "residual_agreement", "share of examples", _PAPER)


def _sentence(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = ends(entry, "residual_agreement")
    half = _first_above(entry, 0.5)
    majority = "In no layer is it" if half is None else f"From layer {half} on it is"
    return (
        f"The residual already has the model's final top token in {percent(bottom)} of the examples before layer {first_at} "
        f"and in {percent(top)} before layer {last_at}. {majority} more than half of them. In the paper, it is about a third "
        "in the lower layers and about 95 % before the last."
    )


def _first_above(entry: Entry, bound: float) -> int | None:
    """The lowest layer from which the series stays above a bound."""
    first = None
    for layer, value in zip(entry["layer"], entry["series"]["residual_agreement"]["value"], strict=True):
        first = (layer if first is None else first) if value > bound else None
    return first


def _findings(entry: Entry) -> list[Finding]:
    lowest, highest = ends(entry, "residual_agreement")
    return [
        Finding(
            "Examples where the residual already has the final top token",
            by_depth(lowest, highest),
            "near 0 in the lowest layer, 95 % at the top",
            trend(lowest, highest, expected="rises", top=(0.95, 0.95)),
        )
    ]


FIGURE = Figure(
    name="residual_agreement",
    number=9,
    title="Examples where the residual already has the final top token",
    stage="refinement",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Bar: share of examples where the residual before the layer already has the model's final top token. Whisker:"
        " 95 % interval. Grey boxes: the paper."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={"residual_agreement": _LABEL},
    paper=_PAPER,
)
