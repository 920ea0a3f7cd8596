"""Whether memories with a pattern, and those that agree with their triggers, matter more than the others of their layer."""

from typing import Any

import numpy as np

from ffscope.axes import Array
from ffscope.queries.effects import described_memories
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source

_KINDS = {"pattern": "pattern / none", "agrees": "agreement / none"}
_AXIS = "ratio of mean effects"


def _series(source: Source) -> Entry | None:
    columns = described_memories(source.tables)
    layers = np.unique(columns["layer"])
    series, overall = {}, {}
    for kind, label in _KINDS.items():
        flags = columns[kind].astype(np.float64)
        # Where all effects of a layer are 0, none has a relative size.
        known = ~np.isnan(flags) & ~np.isnan(columns["relative"].astype(np.float64))
        if not known.any():
            continue
        rows = np.stack([flags, columns["effect_size"].astype(np.float64), columns["relative"].astype(np.float64)], 1)
        measures = [source.statistic(rows[known & (columns["layer"] == layer)], _ratio) for layer in layers]
        series[label] = {name: [measure[name] for measure in measures] for name in ("value", "low", "high")}
        counts = {"with": int(flags[known].sum()), "without": int((1 - flags[known]).sum())}
        overall[kind] = {**source.statistic(rows[known][:, [0, 2]], _ratio), **counts}
    return {"layer": layers.tolist(), "series": series, "overall": overall} if series else None


def _ratio(rows: Array) -> float:
    """The mean of the second column where the first is 1, divided by the mean where it is 0."""
    chosen = rows[:, 0] == 1
    if chosen.all() or not chosen.any():
        return np.nan
    rest = rows[~chosen, 1].mean()
    return float(rows[chosen, 1].mean() / rest) if rest > 0 else np.nan


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    colours = dict(zip(entry["series"], (drawing.BLUE, drawing.RED), strict=False))
    return drawing.dots(entry, colours, _AXIS, rule=1.0)


def _sentence(entry: Entry) -> str:
    parts = []
    for kind, row in entry["overall"].items():
        subject = "with a pattern" if kind == "pattern" else "whose value agrees with the top trigger"
        if row["value"] is not None:
            parts.append(
                f"Relative to the mean of their layer, effects of the {row['with']:,} memories {subject} are {row['value']:.2f} "
                f"times those of the {row['without']:,} others that fire (95 % interval {row['low']:.2f} to {row['high']:.2f})."
            )
    return " ".join(parts) or "No layer has memories of both kinds."


def _findings(entry: Entry) -> list[Finding]:
    names = {
        "pattern": "Effect on the loss of memories with a pattern, relative to the others of their layer",
        "agrees": "Effect on the loss of memories whose value agrees with their trigger, relative to the others of their layer",
    }
    return [
        Finding(
            names[kind], f"× {row['value']:.2f} ({row['low']:.2f} to {row['high']:.2f})", "not measured", _reading(row)
        )
        for kind, row in entry["overall"].items()
        if row["value"] is not None
    ]


def _reading(row: dict[str, float]) -> str:
    if row["low"] > 1:
        return "they matter more"
    return "they matter less" if row["high"] < 1 else "no difference is shown"


FIGURE = Figure(
    name="effect_kinds",
    title="Effects of memories with and without a pattern, and with and without agreement",
    stage="effects",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Point: mean size of the effects of the memories of a kind, divided by that of the other memories of the layer that fire. "
        "Whisker: 95 % interval over memories. Dashed line: no difference."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={
        _KINDS["pattern"]: "memories with a pattern, divided by those without",
        _KINDS["agrees"]: "memories whose value agrees with the top trigger, divided by those whose value does not",
    },
)
