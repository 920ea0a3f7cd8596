"""The first leaks, with the memories that hold them."""

from typing import Any

from ffscope.queries.leaks import LeakRow, leak_rows
from ffscope.queries.tables import Tables
from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source
from ffscope.report.wording import decimal

_SHOWN, _MEMORIES, _TEXT = 30, 5, 120


def _series(source: Source) -> Entry | None:
    rows = leak_rows(source.tables, _SHOWN)
    return {"leaks": source.tables.count("leaks"), "shown": len(rows)} if rows else None


def _rows(tables: Tables, _entry: Entry) -> list[dict[str, Any]]:
    return [_row(row) for row in leak_rows(tables, _SHOWN)]


def _row(row: LeakRow) -> dict[str, Any]:
    holders = [holder.memory for holder in row.holders]
    return {
        "leak": row.leak,
        "kind": ", ".join(filter(None, (row.kind, row.personal))),
        "prefix": _cut(row.prefix[-_TEXT // 2 :]),
        "text": _cut(row.text),
        "tokens": row.tokens,
        "contexts": row.contexts if row.wider_contexts is None else row.wider_contexts,
        "drop": None if row.memories is None or row.drop is None else decimal(row.drop, ".3g"),
        "loss_change": None if row.loss_change is None else decimal(row.loss_change, "+.4f"),
        "memories": " ".join(holders[:_MEMORIES])
        + (f" and {len(holders) - _MEMORIES} more" * (len(holders) > _MEMORIES)),
    }


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


def _sentence(entry: Entry) -> str:
    shown = f"The first {entry['shown']} of {entry['leaks']:,}" if entry["shown"] < entry["leaks"] else "All"
    return (
        f"{shown} completions after triggers: personal data first, then secrets, the longest first. Memories: the fewest whose "
        "joint removal breaks the completion, with the drop of its log-probability and the change of the held-out loss, in nats."
    )


FIGURE = Figure(
    name="leak_list",
    title="What the model gives away",
    stage="leaks",
    series=_series,
    sentence=_sentence,
    rows=_rows,
    labels={
        "leak": "Leak",
        "kind": "Kind",
        "prefix": "Prefix",
        "text": "Completion",
        "tokens": "Tokens",
        "contexts": "Other contexts",
        "drop": "Drop",
        "loss_change": "Held-out loss",
        "memories": "Memories",
    },
)
