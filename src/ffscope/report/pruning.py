"""Held-out perplexity by the share of the memories that is pruned, in the order of each score."""

from collections.abc import Iterator
from math import exp
from typing import Any

import numpy as np

from ffscope.queries.pruning import pruning_points
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source
from ffscope.report.wording import decimal, percent

NAMES = {
    "effect": "effect on the loss",
    "effect_size": "size of the effect",
    "contribution": "contribution",
    "squared": "squared contribution",
    "firing": "firing rate",
    "redundancy": "redundancy",
    "random": "random",
}
_AXIS = "held-out perplexity"
_ESTIMATED = {"effect", "effect_size"}  # at examples of the text on which the loss is measured
_SHARE = 0.2  # at which the scores are compared in words, or the nearest one
_LARGEST = 700.0  # nats: the exponential of more overflows
_MOST_LINEAR = 5  # a range of perplexities that a linear axis can show
_MARGIN = 1.03  # of the axis, beyond the lowest and the highest


def _series(source: Source) -> Entry | None:
    columns = pruning_points(source.tables)
    stage = source.study.manifest["stages"]["prune"]
    entry: Entry = {"perplexity": stage["perplexity"], "replace": stage["options"]["replace"], "scores": {}}
    loss = stage["loss"]
    for row in _rows(columns):
        if np.isnan(row["layer"]):
            ends = {"value": row["change"], "low": row["low"], "high": row["high"]}
            point = {"share": round(float(row["share"]), 6), "memories": int(row["memories"])}
            perplexities = {name: _perplexity(loss + change) for name, change in ends.items()}
            entry["scores"].setdefault(row["score"], []).append({**point, **perplexities})
    return entry if entry["scores"] else None


def _rows(columns: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))


def _perplexity(loss: float) -> float | None:
    """The perplexity; None if it overflows."""
    return exp(loss) if loss < _LARGEST else None


def colours(names: Any) -> dict[str, str]:
    """The colour of each score, by its name for readers."""
    from ffscope.report import drawing

    palette = (drawing.BLUE, drawing.SKY, drawing.RED, "#CC79A7", drawing.GREEN, drawing.BLACK, drawing.GREY)
    return {name: colour for (score, name), colour in zip(NAMES.items(), palette, strict=True) if score in names}


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    start = {"share": 0.0, "value": entry["perplexity"], "low": entry["perplexity"], "high": entry["perplexity"]}
    points = [
        {"score": NAMES[score], **point}
        for score, curve in entry["scores"].items()
        for point in (start, *curve)
        if None not in point.values()
    ]
    values = [point[end] for point in points for end in ("low", "high")]
    lowest, highest = min(values), max(values)
    scale = alt.Scale(
        type="log" if highest > _MOST_LINEAR * lowest else "linear",
        domain=[lowest / _MARGIN, highest * _MARGIN],
        nice=False,
        zero=False,
    )
    chosen = colours(entry["scores"])
    colour = alt.Color(
        "score:N",
        scale=alt.Scale(domain=list(chosen), range=list(chosen.values())),
        legend=alt.Legend(title=None, columns=3),
    )
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X("share:Q", title="share of the memories that is pruned", axis=alt.Axis(format="~%", grid=False))
    )
    y = alt.Y("value:Q", title=_AXIS, scale=scale)
    band = base.transform_filter(f"datum.score == '{NAMES['random']}'").mark_area(color=drawing.GREY, opacity=0.3)
    tips = [alt.Tooltip("score:N", title=""), alt.Tooltip("share:Q", format="~%"), *drawing.value_tooltip(_AXIS, ".4g")]
    return drawing.layered(
        band.encode(y=alt.Y("low:Q", title=_AXIS, scale=scale), y2="high:Q"),
        base.mark_line(strokeWidth=2).encode(y=y, color=colour),
        base.mark_point(filled=True, size=40, opacity=1).encode(y=y, color=colour, tooltip=tips),
    ).resolve_scale(color="shared")


def _at(entry: Entry) -> tuple[float, dict[str, Entry]]:
    """The share at which scores are compared, and their points there, the lowest perplexity first."""
    shares = {point["share"] for curve in entry["scores"].values() for point in curve}
    share = min(shares, key=lambda share: (abs(share - _SHARE), share))
    points = {
        score: point
        for score, curve in entry["scores"].items()
        for point in curve
        if point["share"] == share and point["value"] is not None
    }
    return share, dict(sorted(points.items(), key=lambda item: item[1]["value"]))


def _sentence(entry: Entry) -> str:
    share, points = _at(entry)
    parts = [f"{NAMES[score]} {_number(point['value'])} ({_range(point)})" for score, point in points.items()]
    how = "set to 0" if entry["replace"] == "zero" else "replaced by their mean coefficients"
    same_text = (
        " Effects were estimated at examples of this text, which flatters them." if _ESTIMATED & set(points) else ""
    )
    return (
        f"Without {percent(share)} of the memories, {how}, perplexity rises from {_number(entry['perplexity'])} to, by the score "
        f"they are chosen by: {'; '.join(parts)}. Intervals are of 95 % over prefixes, at random the lowest and highest draw."
        f"{same_text}"
    )


def _range(point: Entry) -> str:
    low, high = (None if point[end] is None else _number(point[end]) for end in ("low", "high"))
    return f"{low or 'overflow'} to {high or 'overflow'}"


def _number(perplexity: float) -> str:
    return f"{perplexity:,.0f}" if perplexity >= 1000 else decimal(perplexity, ".3g" if perplexity >= 100 else ".1f")


def _findings(entry: Entry) -> list[Finding]:
    share, points = _at(entry)
    scored = {score: point for score, point in points.items() if score != "random"}
    if not scored:
        return []
    best, *others = scored
    intact = entry["perplexity"]
    value = f"× {points[best]['value'] / intact:.3g} by {NAMES[best]}"
    if others:
        value += f"; × {points[others[0]]['value'] / intact:.3g} by {NAMES[others[0]]}"
    if "random" in points:
        value += f"; × {points['random']['value'] / intact:.3g} at random"
    return [
        Finding(
            f"Perplexity without {percent(share)} of the memories",
            value,
            "not measured",
            _reading(points, best, others),
        )
    ]


def _reading(points: dict[str, Entry], best: str, others: list[str]) -> str:
    rivals = [name for name in (others[:1] or ["random"]) if name in points]
    if not rivals:
        return f"only {NAMES[best]} was measured"
    high, low = points[best]["high"], points[rivals[0]]["low"]
    clear = high is not None and low is not None and high < low
    if not clear:
        return f"{NAMES[best]} is not clearly ahead of {NAMES[rivals[0]]}"
    return f"{NAMES[best]} prunes best{', on the text it was estimated on' if best in _ESTIMATED else ''}"


FIGURE = Figure(
    name="pruning",
    title="Held-out perplexity by the share of the memories that is pruned",
    stage="prune",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Line: perplexity over held-out text when this share of all memories is taken away, those with the lowest score first (of "
        "redundant ones, those with the highest). Contribution: mean |coefficient| × ‖value‖. Grey band: the lowest and highest "
        "of several random draws."
    ),
    sentence=_sentence,
    findings=_findings,
    labels=NAMES,
)
