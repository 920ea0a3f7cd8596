"""Text that the model gives away, with the memories that hold it; personal data is masked unless the study says otherwise."""

from dataclasses import dataclass
from typing import Any

from ffscope.memory_name import Memory
from ffscope.personal import masked
from ffscope.queries.tables import Tables, Where, reading

_PREFIX, _REST = 200, 80  # characters
MASK = "[secret]"


@dataclass(frozen=True)
class Holder:
    """A memory of a leak, and the drop of the log-probability when it alone is removed; None if that was not measured."""

    memory: str
    drop: float | None
    breaks: bool | None


@dataclass(frozen=True)
class LeakRow:
    """A completion. What follows `log_prob` is None where it was not measured; `holders` are those that it needs."""

    leak: int
    kind: str
    personal: str
    prefix: str
    text: str
    rest: str
    tokens: int
    triggers: int
    places: int
    contexts: int
    wider_contexts: int | None
    common: float
    copied: float
    log_prob: float | None
    short_log_prob: float | None
    memories: int | None
    drop: float | None
    left: int | None
    random_drop: float | None
    loss_change: float | None
    holders: list[Holder]


@dataclass(frozen=True)
class CanaryRow:
    """A canary and its exposure in bits; `bound` says that it is at least that."""

    text: str
    space: float
    log_perplexity: float
    candidates: int
    rank: int
    exact: bool
    bound: bool
    exposure: float
    modelled: float | None


def leak_rows(where: Where, count: int = 100, *, kind: str = "", offset: int = 0) -> list[LeakRow]:
    """The leaks of a kind (`personal` is one too) or all, in the order of the table."""
    with reading(where) as tables:
        tables.study.need("leaks")
        cursor = tables.execute(
            """
            SELECT * FROM leaks WHERE $kind = '' OR kind = $kind OR ($kind = 'personal' AND personal <> '')
            ORDER BY leak LIMIT $count OFFSET $offset
            """,
            {"kind": kind, "count": count, "offset": offset},
        )
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        holders = _holders(tables, [row["leak"] for row in rows])
        personal = _shows_personal(tables)
    return [_leak_row(row, holders.get(row["leak"], []), personal=personal) for row in rows]


def _holders(tables: Tables, leaks: list[int]) -> dict[int, list[Holder]]:
    rows = tables.rows(
        """
        SELECT leak, layer, memory, "drop", breaks FROM leak_memories
        WHERE holds AND leak IN (SELECT unnest(?::INT[])) ORDER BY leak, rank
        """,
        [leaks],
    )
    holders: dict[int, list[Holder]] = {}
    for leak, layer, memory, drop, breaks in rows:
        holders.setdefault(leak, []).append(Holder(str(Memory(layer, memory)), drop, breaks))
    return holders


def _shows_personal(tables: Tables) -> bool:
    return bool(tables.study.manifest["stages"]["leaks"]["show_personal"])


def _leak_row(row: dict[str, Any], holders: list[Holder], *, personal: bool) -> LeakRow:
    prefix, text, rest = _shown(row, personal=personal)
    names = set(LeakRow.__dataclass_fields__) - {"prefix", "text", "rest", "holders"}
    return LeakRow(**{name: row[name] for name in names}, prefix=prefix, text=text, rest=rest, holders=holders)


def _shown(row: dict[str, Any], *, personal: bool) -> list[str]:
    """Prefix, completion and rest of a leak as they are shown: masked before they are cut."""
    parts = [row["prefix"], row["text"], row["rest"]]
    prefix, text, rest = parts if personal else masked(*parts)
    return [prefix[-_PREFIX:], text, rest[:_REST]]


def canary_rows(where: Where) -> list[CanaryRow]:
    """The canaries, in the order of their file."""
    with reading(where) as tables:
        if not tables.has("canaries"):
            return []
        personal = _shows_personal(tables)
        cursor = tables.execute("SELECT * FROM canaries ORDER BY canary")
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return [
        CanaryRow(
            text=f"{row['before']}{row['secret'] if personal else MASK}{row['after']}",
            **{name: row[name] for name in ("space", "log_perplexity", "candidates", "rank", "exposure")},
            exact=row["all_candidates"],
            bound=not row["all_candidates"] and row["rank"] == 1,
            modelled=row["exposure_modelled"],
        )
        for row in rows
    ]


def leak_numbers(tables: Tables) -> dict[str, Any]:
    """How many leaks there are of each kind, and what was measured of them."""
    row = tables.row(
        """
        SELECT count(*) AS leaks, count(*) FILTER (personal <> '') AS personal, count(log_prob) AS measured,
            count(memories) AS broken, median(memories) AS memories, median("drop") FILTER (memories IS NOT NULL) AS "drop",
            median(random_drop) FILTER (memories IS NOT NULL) AS random_drop,
            avg(random_broken) FILTER (memories IS NOT NULL) AS random_broken,
            count(*) FILTER (together_left IS NOT NULL) AS together, median(loss_change) AS loss_change
        FROM leaks
        """
    )
    assert row is not None
    return row


def leaks_panel(where: Where, memory: Memory) -> dict[str, Any] | None:
    """The leaks of which a memory was removed, those that need it first, as the table of a panel."""
    with reading(where) as tables:
        if not tables.study.has("leaks"):
            return None
        cursor = tables.execute(
            """
            SELECT l.*, m."drop" AS drop_alone, m.rank, m.holds, m.breaks FROM leak_memories m JOIN leaks l USING (leak)
            WHERE m.layer = ? AND m.memory = ? ORDER BY m.holds DESC, drop_alone DESC NULLS LAST, leak LIMIT 50
            """,
            [*memory],
        )
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        personal = bool(rows) and _shows_personal(tables)
    if not rows:
        return None
    return {
        "heads": ["Leak", "Prefix → completion", "Drop", "Needed", "Breaks"],
        "kinds": ["count", "text", "real", "text", "text"],
        "rows": [_panel_row(row, personal=personal) for row in rows],
    }


def _panel_row(row: dict[str, Any], *, personal: bool) -> list[Any]:
    prefix, text, _ = _shown(row, personal=personal)
    answers = ({True: "yes", False: "no", None: None}[row[name]] for name in ("holds", "breaks"))
    return [row["leak"], f"{prefix[-60:]} → {text}", row["drop_alone"], *answers]
