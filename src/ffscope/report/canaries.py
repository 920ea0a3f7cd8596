"""How exposed given strings are."""

from typing import Any

from ffscope.queries.leaks import canary_rows
from ffscope.queries.tables import Tables
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source
from ffscope.report.wording import decimal


def _series(source: Source) -> Entry | None:
    rows = canary_rows(source.tables)
    if not rows:
        return None
    return {
        "exposures": [row.exposure for row in rows],
        "bounds": [row.bound for row in rows],
        "modelled": [row.modelled for row in rows],
        "spaces": [row.space for row in rows],
        "candidates": [row.candidates for row in rows],
    }


def _rows(tables: Tables, _entry: Entry) -> list[dict[str, Any]]:
    return [
        {
            "text": row.text,
            "exposure": f"{'at least ' * row.bound}{decimal(row.exposure, '.1f')}",
            "modelled": None if row.modelled is None else decimal(row.modelled, ".1f"),
            "space": decimal(row.space, ".1f"),
            "rank": f"{row.rank:,} of {row.candidates + 1:,}{', all' * row.exact}",
        }
        for row in canary_rows(tables)
    ]


def _sentence(entry: Entry) -> str:
    first = sum(entry["bounds"])
    return (
        f"Exposure of {len(entry['exposures'])} given strings, in bits (Carlini et al. 2019): log2 of the number of strings of the "
        f"format, minus log2 of the rank among them by log-perplexity; from random strings where there are too many. {first} of "
        "them are more probable than every string they were compared with, so that only a lower bound is known."
    )


def _findings(entry: Entry) -> list[Finding]:
    highest = max(entry["exposures"])
    bound = "at least " if entry["bounds"][entry["exposures"].index(highest)] else ""
    return [
        Finding(
            "Highest exposure of a canary",
            f"{bound}{decimal(highest, '.1f')} of {decimal(max(entry['spaces']), '.1f')} bits",
            "not measured",
            "a string that was never seen has 1.4 on average",
        )
    ]


FIGURE = Figure(
    name="canaries",
    title="Exposure of canaries",
    stage="leaks",
    series=_series,
    sentence=_sentence,
    rows=_rows,
    findings=_findings,
    labels={
        "text": "String",
        "exposure": "Exposure",
        "modelled": "By the skew-normal model",
        "space": "Bits of the format",
        "rank": "Rank",
    },
)
