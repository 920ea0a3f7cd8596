"""What a model has kept of the model it is compared with, by layer."""

from typing import Any

import numpy as np

from ffscope.queries.diff import compared_memories
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import decimal, mean, percent

_LABELS = {
    "correlation": "correlation of coefficients",
    "key_cosine": "cosine of keys",
    "value_cosine": "cosine of values",
    "triggers_kept": "triggers kept",
    "top_kept": "top tokens kept",
}
_AXIS = "mean over the memories of the layer"


def _series(source: Source) -> Entry | None:
    columns = compared_memories(source.tables)
    entry = source.study.manifest["stages"]["diff"]
    series = {}
    layers: list[int] = np.unique(columns["layer"]).tolist()
    for name in _LABELS:
        known = ~np.isnan(columns[name].astype(np.float64))
        if known.any():
            of_layer = {"layer": columns["layer"][known], name: columns[name][known].astype(np.float64)}
            present, values = by_layer(of_layer, name, lambda numbers: source.statistic(numbers, _mean))
            place = {layer: at for at, layer in enumerate(present)}
            series[name] = {
                end: [numbers[place[layer]] if layer in place else None for layer in layers]
                for end, numbers in values.items()
            }
    names = ("match", "predictions")
    return {"layer": layers, "series": series, **{name: entry[name] for name in names}} if series else None


def _mean(numbers: np.ndarray) -> float:
    return float(numbers.mean())


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    colours = [drawing.BLUE, drawing.RED, drawing.GREEN, drawing.BLACK, drawing.GREY]
    labelled = {_LABELS[name]: values for name, values in entry["series"].items()}
    lowest = min(value for values in labelled.values() for value in values["value"] if value is not None)
    scale = alt.Scale(domain=[min(0.0, lowest), 1])
    return drawing.dots(
        {"layer": entry["layer"], "series": labelled}, dict(zip(labelled, colours, strict=False)), _AXIS, scale=scale
    )


def _sentence(entry: Entry) -> str:
    parts = []
    for name, values in entry["series"].items():
        known = [
            (layer, value) for layer, value in zip(entry["layer"], values["value"], strict=True) if value is not None
        ]
        lowest = min(known, key=lambda pair: pair[1])
        parts.append(
            f"{_LABELS[name]} {decimal(mean([value for _, value in known]))} (lowest in layer {lowest[0]}: {decimal(lowest[1])})"
        )
    paired = "of the same number" if entry["match"] == "index" else "with the highest correlation of coefficients"
    return f"Means over layers of pairs of memories, each with the memory {paired} in the model before: {'; '.join(parts)}."


def _findings(entry: Entry) -> list[Finding]:
    predictions = entry["predictions"]
    if predictions is None:
        return []
    return [
        Finding(
            "Predictions that differ from those of the model before",
            f"{percent(predictions['changed'])} of {predictions['prefixes']:,}; KL {predictions['divergence']:.3g} nats",
            "not measured",
            f"perplexity {predictions['perplexity_before']:.4g} before, {predictions['perplexity_after']:.4g} after",
        )
    ]


FIGURE = Figure(
    name="diff_layers",
    title="What is kept between two models, by layer",
    stage="diff",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Point: mean over the layer's memories of how similar each is to its partner in the model before. Line: 95 % interval over "
        "memories. Triggers kept: Jaccard index of the two sets of triggers."
    ),
    sentence=_sentence,
    findings=_findings,
    labels=_LABELS,
)
