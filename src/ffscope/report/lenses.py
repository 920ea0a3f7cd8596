"""How early, and through which lens, the layers can be read: the four lenses layer by layer."""

from math import isfinite
from typing import Any

from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source
from ffscope.report.wording import percent

_COLUMNS = ("divergence", "residual_agreement", "agreement", "next_rank", "distance")
_LABELS = {
    "divergence": "KL divergence from the model, nats",
    "residual_agreement": "residual agreement",
    "agreement": "agreement of values with triggers",
    "next_rank": "rank of the next token in the value, median",
    "distance": "distance of the matrix from the identity",
}


def _series(source: Source) -> Entry | None:
    columns = source.tables.columns("lenses", "lens", "layer", "examples", *_COLUMNS)
    if not len(columns["lens"]):
        return None
    layers = sorted({int(layer) for layer in columns["layer"]})
    lenses = {
        name: {
            column: [
                _number(columns[column][(columns["lens"] == name) & (columns["layer"] == layer)]) for layer in layers
            ]
            for column in _COLUMNS
        }
        for name in dict.fromkeys(columns["lens"].tolist())
    }
    return {
        "layer": layers,
        "lenses": lenses,
        "examples": int(columns["examples"][0]),
        "vocabulary": source.model["vocab"],
    }


def _number(values: Any) -> float | None:
    value = float(values[0]) if len(values) else float("nan")
    return value if isfinite(value) else None


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    colours = dict(zip(entry["lenses"], (drawing.BLUE, drawing.GREY, drawing.RED, drawing.GREEN), strict=False))
    panels = [
        drawing.lines(
            entry["layer"],
            {name: series[column] for name, series in entry["lenses"].items()},
            _LABELS[column],
            colours=colours,
            percent="agreement" in column,
            log=column in ("divergence", "next_rank", "distance"),
        )
        for column in _COLUMNS
        if any(value is not None for series in entry["lenses"].values() for value in series[column])
    ]
    return alt.concat(*panels, columns=2)


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _sentence(entry: Entry) -> str:
    means = {name: _mean(series["divergence"]) for name, series in entry["lenses"].items()}
    listed = ", ".join(f"{name} {value:.2f}" for name, value in means.items() if value is not None)
    text = f"Mean divergence over the layers, in nats, at {entry['examples']:,} examples: {listed}."
    first = [f"{name} {percent(series['residual_agreement'][0])}" for name, series in entry["lenses"].items()]
    text += f" Residual agreement in layer {entry['layer'][0]}: {', '.join(first)}."
    if "tuned" in entry["lenses"]:
        distance = entry["lenses"]["tuned"]["distance"]
        text += (
            f" The matrices of the tuned lens are {distance[0]:.2f} from the identity in layer {entry['layer'][0]} and "
            f"{distance[-1]:.2f} in layer {entry['layer'][-1]}, relative to it: the further, the less a layer shares the space of "
            "the output."
        )
    return text


def _findings(entry: Entry) -> list[Finding]:
    if "tuned" not in entry["lenses"]:
        return []
    norm, tuned = (_mean(entry["lenses"][name]["divergence"]) for name in ("norm", "tuned"))
    if norm is None or tuned is None:
        return []
    return [
        Finding(
            "Divergence of the residual’s reading from the final prediction, mean over layers",
            f"{norm:.2f} nats through the norm lens, {tuned:.2f} through the tuned lens",
            "assumes one space for all layers",
            "lower layers use another space" if tuned < norm else "one space for all layers",
        )
    ]


FIGURE = Figure(
    name="lenses",
    title="The residual and the values of each layer, read through each lens",
    stage="lens",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Line: one lens. Divergence, residual agreement: of the residual before the layer, at held-out examples. Agreement, rank: "
        "of the values with their top triggers, over memories. Distance: of the lens's matrix for the residual from the identity."
    ),
    sentence=_sentence,
    findings=_findings,
    terms={
        "norm": "Through the final norm and the unembedding, as the model reads its last output.",
        "raw": "Through the unembedding alone, as in the paper.",
        "tuned": "Through an affine map per layer, trained to give the model's own prediction, then as norm (Belrose et al. 2023).",
        "jacobian": "Through the mean Jacobian of the layers above, then as norm (Gurnee et al. 2026).",
    },
    labels=_LABELS,
)
