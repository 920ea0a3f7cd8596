"""Which scores find the memories that matter: their rank correlation with measured effects."""

from typing import Any

import numpy as np

from ffscope.queries.effects import scored_memories
from ffscope.report.correlation import EFFECT_DECIMALS, spearman
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source
from ffscope.report.wording import decimal

_SCORES = {
    "effect_size": "estimated effect",
    "contribution": "mean |coefficient| × ‖value‖",
    "loss_gradient": "gradient",
    "fires": "firing rate",
    "norm": "‖value‖",
}
_AXIS = "rank correlation with the measured effect"


def _series(source: Source) -> Entry | None:
    columns = scored_memories(source.tables)
    if not len(columns["layer"]):
        return None
    numbers = {name: columns[name].astype(np.float64) for name in ("exact_size", *_SCORES)}
    known = {name: column for name, column in numbers.items() if not np.isnan(column).all()}
    # A study may have searched only some memories; the others have no firing rate. Strong and weak ones are found by any score.
    random = (columns["selected"] == "random") & ~np.isnan(np.stack(list(known.values()))).any(0)
    if not random.any():
        return None
    rows, layers = {}, columns["layer"][random]
    for name in filter(known.__contains__, _SCORES):
        pairs = np.stack([known[name], known["exact_size"].round(EFFECT_DECIMALS)], 1)[random]
        by_layer = [spearman(pairs[layers == layer]) for layer in np.unique(layers)]
        within = [value for value in by_layer if not np.isnan(value)]
        rows[name] = {
            **source.statistic(pairs, spearman),
            "within_layers": float(np.mean(within)) if within else None,
        }
    return {"memories": int(random.sum()), "scores": rows}


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    rows = [
        {"name": _SCORES[name], "series": _AXIS, **row}
        for name, row in entry["scores"].items()
        if row["value"] is not None
    ]
    return drawing.named_dots(rows, _AXIS, colours={_AXIS: drawing.BLUE})


def _sentence(entry: Entry) -> str:
    scores = {name: row for name, row in entry["scores"].items() if row["value"] is not None}
    if not scores:
        return "The memories selected at random have no effect at the examples where effects were measured."
    parts = [
        f"{_SCORES[name]} {decimal(row['value'])} ({decimal(row['low'])} to {decimal(row['high'])})"
        for name, row in scores.items()
    ]
    return (
        f"Rank correlation with the measured size of the effect, over {entry['memories']:,} memories selected at random from all "
        f"layers, with 95 % intervals: {'; '.join(parts)}."
    )


def _findings(entry: Entry) -> list[Finding]:
    usual, estimate = (entry["scores"].get(name, {}).get("value") for name in ("contribution", "effect_size"))
    if usual is None or estimate is None:
        return []
    better = "worse than the estimate from gradients" if usual < estimate else "as good as the estimate from gradients"
    return [
        Finding(
            "Rank correlation of mean |coefficient| × ‖value‖ with the measured effect",
            f"{decimal(usual)}; the estimate {decimal(estimate)}",
            "not measured",
            better,
        )
    ]


FIGURE = Figure(
    name="effect_scores",
    title="Scores of memories compared with their measured effects",
    stage="effects",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Point: rank correlation of a score with the measured size of the effect on the loss (mean absolute change), "
        "over memories selected at random. Line: 95 % interval over memories."
    ),
    sentence=_sentence,
    findings=_findings,
    labels=_SCORES,
)
