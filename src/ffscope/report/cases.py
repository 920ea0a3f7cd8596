"""Figure 11: whether the residual, the feed-forward layer, both or neither have the output's top token."""

from typing import Any

from ffscope.cases import CASE_MEANINGS, CASES
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import compare, mean, percent

_PAPER = {"residual": [(1, 16, 0.60, 0.85)]}


def _series(source: Source) -> Entry:
    columns = source.tables.columns("refinement", "layer", "case")
    series = {}
    for case in CASES:
        columns[case] = columns["case"] == case
        layers, series[case] = by_layer(columns, case, source.share)
    return {"layer": layers, "series": series}


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    colours: dict[str, str] = dict(zip(CASES, (drawing.BLUE, drawing.SKY, drawing.YELLOW, drawing.BLACK), strict=True))
    return drawing.stacked(entry, colours, "share of examples", "case", _PAPER)


def _sentence(entry: Entry) -> str:
    shares = [[series["value"][i] for series in entry["series"].values()] for i in range(len(entry["layer"]))]
    residual, ffn = (entry["series"][case]["value"] for case in ("residual", "ffn"))
    largest = sum(share == max(layer) for share, layer in zip(residual, shares, strict=True))
    smallest = sum(share == min(layer) for share, layer in zip(ffn, shares, strict=True))
    means = ", ".join(f"{case} {percent(mean(series['value']))}" for case, series in entry["series"].items())
    return (
        f"Mean shares over the layers: {means}. The residual case is the largest in {largest} of {len(shares)} layers; the "
        f"ffn case is the smallest in {smallest}. In the paper, residual is the largest in every layer, about 60 to 85 %, and "
        "ffn the smallest."
    )


def _findings(entry: Entry) -> list[Finding]:
    means = {case: mean(series["value"]) for case, series in entry["series"].items()}
    rarest = means["ffn"] == min(means.values())
    return [
        Finding(
            "Output has the residual's top token, not the feed-forward layer's; mean over layers",
            percent(means["residual"]),
            "60 to 85 %",
            compare(means["residual"], 0.60, 0.85),
        ),
        Finding(
            "Output has the feed-forward layer's top token, not the residual's; mean over layers",
            percent(means["ffn"]),
            "the rarest of the four cases",
            "rarest case, as in the paper" if rarest else "not the rarest case, unlike in the paper",
        ),
    ]


FIGURE = Figure(
    name="cases",
    number=11,
    title="Refinement cases: which component has the output's top token",
    stage="refinement",
    series=_series,
    chart=_chart,
    how_to_read=(
        "One bar per layer. Its parts are the shares of examples in each of the four cases. The grey box is the paper's range for"
        " the residual case."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={
        "agreement": "examples where residual and layer both have the output's top token",
        "residual": "examples where only the residual has the output's top token",
        "ffn": "examples where only the layer has the output's top token",
        "composition": "examples where neither has the output's top token",
    },
    terms={case: f"{CASE_MEANINGS[case][0].upper()}{CASE_MEANINGS[case][1:]}." for case in CASES},
    paper=_PAPER,
)
