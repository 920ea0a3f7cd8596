"""How well effects that are estimated from gradients agree with those measured by running the model without a memory."""

from typing import Any

import numpy as np

from ffscope.axes import Array
from ffscope.report.correlation import EFFECT_DECIMALS, pearson, slope, spearman
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source
from ffscope.report.wording import decimal

_RANK, _PAIRS = "memories, by rank", "single examples"
_TRUSTED, _SLOPES = 0.8, (0.5, 2.0)


def _series(source: Source) -> Entry | None:
    names = ("layer", "estimate", "effect", "selected", "product", "estimate_square", "effect_square")
    columns = source.tables.columns("exact_effects", *names)
    if not len(columns["layer"]):
        return None
    means = np.stack([columns[name].astype(np.float64) for name in ("estimate", "effect")], 1).round(EFFECT_DECIMALS)
    squares = np.stack([columns[name] for name in ("product", "estimate_square", "effect_square")], 1)
    layers = np.unique(columns["layer"])
    random = columns["selected"] == "random"

    def each(rows: Array, statistic: Any) -> dict[str, list[float | None]]:
        measures = [source.statistic(rows[columns["layer"] == layer], statistic) for layer in layers]
        return {name: [measure[name] for measure in measures] for name in ("value", "low", "high")}

    return {
        "layer": layers.tolist(),
        "series": {_RANK: each(means, spearman), _PAIRS: each(squares, _cosine), "slope": each(means, slope)},
        "memories": len(means),
        "correlation": source.statistic(means, pearson),
        "random": source.statistic(means[random], spearman),
    }


def _cosine(rows: Array) -> float:
    """The correlation about zero over memories and examples, from the means of the product and of both squares."""
    product, first, second = rows.sum(0)
    return float(product / np.sqrt(first * second)) if first * second > 0 else np.nan


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    colours = {_RANK: drawing.BLUE, _PAIRS: drawing.RED}
    return drawing.dots(
        entry, colours, "correlation of estimate and exact effect", scale=alt.Scale(domainMax=1), rule=_TRUSTED
    )


def distrusted(entry: Entry) -> list[int]:
    """The layers whose estimates should not be used without measuring: a rank correlation below 0.8, or a slope outside 0.5 to 2.

    Where neither is defined, since no effect differs from the others, nothing speaks against the estimate.
    """
    series = entry["series"]
    rows = zip(entry["layer"], series[_RANK]["value"], series["slope"]["value"], strict=True)
    return [
        layer
        for layer, rank, slope_ in rows
        if rank is not None and slope_ is not None and (rank < _TRUSTED or not _SLOPES[0] <= slope_ <= _SLOPES[1])
    ]


def _sentence(entry: Entry) -> str:
    layers, random = distrusted(entry), entry["random"]
    ranks = [value for value in entry["series"][_RANK]["value"] if value is not None]
    slopes = [value for value in entry["series"]["slope"]["value"] if value is not None]
    if not ranks:
        return "Too few effects were measured, or none differs from 0, for a correlation in any layer."
    trust = (
        f"Do not trust the estimates in layers {', '.join(map(str, layers))}: there the rank correlation is below {_TRUSTED}, or "
        f"the slope outside {_SLOPES[0]:g} to {_SLOPES[1]:g}."
        if layers
        else f"In every layer where it is defined, the rank correlation is at least {_TRUSTED}, and the slope within "
        f"{_SLOPES[0]:g} to {_SLOPES[1]:g}."
    )
    at_random = (
        ""
        if random["value"] is None
        else (
            f" Among the memories selected at random, over all layers, it is {decimal(random['value'])} (95 % interval "
            f"{decimal(random['low'])} to {decimal(random['high'])})."
        )
    )
    return (
        f"The effects of {entry['memories']:,} memories were measured. By layer, the rank correlation of estimate and exact "
        f"effect is {decimal(min(ranks))} to {decimal(max(ranks))}, and an estimate of 1 stands for an exact effect of "
        f"{decimal(min(slopes))} to {decimal(max(slopes))} (slope).{at_random} {trust}"
    )


def _findings(entry: Entry) -> list[Finding]:
    ranks = [value for value in entry["series"][_RANK]["value"] if value is not None]
    layers = distrusted(entry)
    if not ranks:
        return []
    reading = (
        f"not to be trusted in {len(layers)} of {len(entry['layer'])} layers"
        if layers
        else "to be trusted in every layer"
    )
    return [
        Finding(
            "Rank correlation of estimated with measured effects, by layer",
            f"{decimal(min(ranks))} to {decimal(max(ranks))}",
            "not measured",
            reading,
        )
    ]


FIGURE = Figure(
    name="effect_estimate",
    title="Agreement of estimated with measured effects",
    stage="effects",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Circles: rank correlation, over the measured memories of a layer, of the estimated and the exact mean effect. Squares: "
        "correlation over single examples. Whiskers: 95 % intervals over memories. Dashed line: 0.8, below which estimates "
        "should not be trusted."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={
        _RANK: "rank correlation of the mean effects of memories",
        _PAIRS: "correlation of the effects at single examples",
        "slope": "slope of the exact effect over the estimate",
    },
)
