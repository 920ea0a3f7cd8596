"""The loss without whole groups of memories, beside as many memories taken away at random."""

from math import exp, isfinite
from typing import Any

from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source

_AXIS = "change of the loss (nats)"
_GROUP, _RANDOM = "the group", "as many at random"


def _series(source: Source) -> Entry | None:
    names = ("group", "random", "memories", "effect", "effect_low", "effect_high")
    columns = source.tables.columns("effect_groups", *names)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*(columns[name].tolist() for name in names), strict=True)]
    entry = [
        {
            "group": row["group"],
            "random": bool(row["random"]),
            "memories": int(row["memories"]),
            **{name: _finite(row[f"effect{end}"]) for name, end in (("value", ""), ("low", "_low"), ("high", "_high"))},
        }
        for row in rows
    ]
    return {"groups": entry, "total": source.tables.count("effects")} if entry else None


def _finite(number: float) -> float | None:
    """The number; None if half precision overflowed."""
    return number if isfinite(number) else None


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    points = [
        {"name": f"{row['group']} ({row['memories']:,})", "series": _RANDOM if row["random"] else _GROUP, **row}
        for row in entry["groups"]
        if row["value"] is not None
    ]
    return drawing.named_dots(points, _AXIS, form="+.4f", colours={_GROUP: drawing.BLUE, _RANDOM: drawing.GREY})


def _sentence(entry: Entry) -> str:
    groups = _comparable(entry)
    parts = []
    for (name, random), row in groups.items():
        if random:
            continue
        other = groups[name, True]
        parts.append(
            f"without {_named(name)} ({row['memories']:,} memories) {row['value']:+.4f} nats ({row['low']:+.4f} to "
            f"{row['high']:+.4f}; as many at random {other['value']:+.4f})"
        )
    return f"Change of the mean loss, measured, with 95 % intervals over examples: {'; '.join(parts)}.".replace(
        "-", "−"
    )


def _comparable(entry: Entry) -> dict[tuple[str, bool], Entry]:
    """The groups whose loss is a number, as is that without as many at random."""
    overflowed = {row["group"] for row in entry["groups"] if row["value"] is None}
    return {(row["group"], row["random"]): row for row in entry["groups"] if row["group"] not in overflowed}


def _named(name: str) -> str:
    if name.startswith(("least", "most")):
        return f"the {name}"
    return f"those {name}" if name.startswith("without") else f"the {name} ones"


def _findings(entry: Entry) -> list[Finding]:
    groups = _comparable(entry)
    least = [name for name, random in groups if name.startswith("least") and not random]
    if not least:
        return []
    row, other = groups[least[-1], False], groups[least[-1], True]
    return [
        Finding(
            f"Perplexity without the {least[-1]} of the memories",
            f"× {exp(row['value']):.3g}; without as many at random × {exp(other['value']):.3g}",
            "not measured",
            "less is lost than at random" if row["high"] < other["low"] else "not clearly less is lost than at random",
        )
    ]


FIGURE = Figure(
    name="effect_groups",
    title="Change of the loss without whole groups of memories",
    stage="effects",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Point: change of the mean loss when all memories of the group (their number in brackets) are taken away together, or as "
        "many at random. Line: 95 % interval over examples."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={"value": _AXIS},
)
