"""What has changed between two models: by layer and in the whole model, and the memories that changed most."""

from dataclasses import dataclass
from typing import Any

from ffscope.axes import Array
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.queries.prefixes import Trigger, with_text
from ffscope.queries.tables import Tables, Where, reading, spellings
from ffscope.tokens import visible

_TOKENS, _SHOWN = 5, 10  # top tokens of a value: in the list of memories, on the page of one
# What the memories can be sorted by; memories without it come last.
SORTS = {
    "change": "change DESC NULLS LAST, coalesce(correlation, -2)",
    "correlation": "correlation NULLS LAST",
    "value_cosine": "value_cosine NULLS LAST",
    "key_cosine": "key_cosine NULLS LAST",
    "triggers_kept": "triggers_kept NULLS LAST, change DESC NULLS LAST",
    "firing": "abs(firing_after - firing_before) DESC NULLS LAST",
}
_MEANS = ("correlation", "gate_cosine", "key_cosine", "value_cosine", "triggers_kept")


@dataclass(frozen=True)
class DiffLayer:
    """The memories of a layer, or of the whole model (`layer` is None): means over those that have the quantity."""

    layer: int | None
    memories: int
    correlation: float | None
    gate_cosine: float | None
    key_cosine: float | None
    value_cosine: float | None
    triggers_kept: float | None
    top_kept: float | None  # share
    change: float | None  # of all that the layer writes, by its memories: √ Σ change²
    universal: float  # share of all memories whose correlation is above the threshold
    baseline: float | None  # share whose correlation with a random direction is
    excess: float | None  # share whose correlation exceeds that with a random direction by more than the threshold


@dataclass(frozen=True)
class DiffSummary:
    """How two models were compared, and what has changed. `before` and `after` are the models' names."""

    before: str
    after: str
    match: str
    match_reason: str
    sampled_tokens: int
    threshold: float
    predictions: dict[str, Any] | None
    why_no_predictions: str | None
    layers: list[DiffLayer]
    overall: DiffLayer


@dataclass(frozen=True)
class ChangedMemory:
    """A memory and its partner in the model before, with the tokens their values promote and their top triggers."""

    memory: str
    partner: str | None
    change: float | None
    correlation: float | None
    key_cosine: float | None
    value_cosine: float | None
    triggers_kept: float | None
    firing_before: float | None
    firing_after: float | None
    rank_of_top: int | None
    tokens_before: list[str]
    tokens_after: list[str]
    trigger_before: Trigger | None
    trigger_after: Trigger | None


def diff_summary(where: Where) -> DiffSummary:
    """What has changed, by layer and in the whole model."""
    with reading(where) as tables:
        tables.study.need("diff")
        entry, model = tables.study.manifest["stages"]["diff"], tables.study.manifest["model"]
        threshold = entry["options"]["universal_above"]
        rows = tables.rows(_summary_query("GROUP BY layer ORDER BY layer"), {"threshold": threshold})
        overall = tables.rows(_summary_query(""), {"threshold": threshold})[0]
    return DiffSummary(
        before=entry["base"]["source"] or entry["base"]["family"],
        after=model["source"] or model["family"],
        match=entry["match"],
        match_reason=entry["match_reason"],
        sampled_tokens=entry["sampled_tokens"],
        threshold=threshold,
        predictions=entry["predictions"],
        why_no_predictions=entry.get("why_no_predictions"),
        layers=[DiffLayer(*row) for row in rows],
        overall=DiffLayer(*overall),
    )


def _summary_query(group: str) -> str:
    by_index = "CASE WHEN count(baseline) > 0 THEN {} / count(*) END"
    return f"""
        SELECT {"layer" if group else "NULL"}, count(*), {", ".join(f"avg({name})" for name in _MEANS)},
            avg(top_kept::INT), sqrt({"sum(change * change)" if group else "sum(change * change) / count(DISTINCT layer)"}),
            count(*) FILTER (correlation > $threshold) / count(*),
            {by_index.format("count(*) FILTER (baseline > $threshold)")},
            {by_index.format("count(*) FILTER (correlation - baseline > $threshold)")}
        FROM diff {group}
        """


def changed_memories(
    where: Where, count: int = 10, *, sort: str = "change", layer: int | None = None, offset: int = 0
) -> list[ChangedMemory]:
    """The memories that changed most, of the whole model or a layer."""
    if sort not in SORTS:
        raise InputError(f"Memories cannot be sorted by {visible(sort)!r}. Expected one of {', '.join(SORTS)}.")
    with reading(where) as tables:
        tables.study.need("diff")
        rows = tables.execute(
            f"""
            SELECT d.*, v.top_tokens AS tokens_after FROM diff d LEFT JOIN values v USING (layer, memory)
            WHERE $layer IS NULL OR layer = $layer ORDER BY {SORTS[sort]}, layer, memory LIMIT $count OFFSET $offset
            """,
            {"layer": layer, "count": count, "offset": offset},
        )
        names = [column[0] for column in rows.description]
        memories = [dict(zip(names, row, strict=True)) for row in rows.fetchall()]
        triggers = {side: _first_triggers(tables, memories, table) for side, table in _TABLES.items()}
        spelt = spellings(tables, (token for row in memories for token in _tokens_of(row, _TOKENS)))
    return [_changed(row, triggers, spelt) for row in memories]


_TABLES = {"before": "diff_triggers", "after": "triggers"}


def _first_triggers(tables: Tables, memories: list[dict[str, Any]], table: str) -> dict[Memory, Trigger]:
    rows = tables.rows(
        f"""
        SELECT layer, memory, rank, coefficient, sentence, position FROM {table}
        SEMI JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory) USING (layer, memory) WHERE rank = 1
        """,
        [[row["layer"] for row in memories], [row["memory"] for row in memories]],
    )
    texts = with_text(tables, [row[2:] for row in rows])
    return {Memory(*row[:2]): text for row, text in zip(rows, texts, strict=True)}


def _tokens_of(row: dict[str, Any], most: int) -> list[int]:
    return [*(row["tokens_before"] or [])[:most], *(row["tokens_after"] or [])[:most]]


def _changed(row: dict[str, Any], triggers: dict[str, dict[Memory, Trigger]], spelt: dict[int, str]) -> ChangedMemory:
    memory = Memory(row["layer"], row["memory"])
    copied = (
        *("change", "correlation", "key_cosine", "value_cosine", "triggers_kept"),
        *("firing_before", "firing_after", "rank_of_top"),
    )
    return ChangedMemory(
        memory=str(memory),
        partner=_partner(row),
        **{name: row[name] for name in copied},
        tokens_before=_spelt(row["tokens_before"], _TOKENS, spelt),
        tokens_after=_spelt(row["tokens_after"], _TOKENS, spelt),
        trigger_before=triggers["before"].get(memory),
        trigger_after=triggers["after"].get(memory),
    )


def _partner(row: dict[str, Any]) -> str | None:
    return None if row["partner_layer"] is None else str(Memory(row["partner_layer"], row["partner_memory"]))


def _spelt(tokens: list[int] | None, most: int, spelt: dict[int, str]) -> list[str]:
    return [spelt.get(token, f"#{token}") for token in (tokens or [])[:most]]


def before_and_after(where: Where, memory: Memory) -> dict[str, Any] | None:
    """A memory beside its partner in the model before, as the table of a panel, with the triggers of both under `more`."""
    with reading(where) as tables:
        row = tables.row("SELECT * FROM diff WHERE layer = ? AND memory = ?", memory)
        if row is None:
            return None
        value = tables.row("SELECT top_tokens FROM values WHERE layer = ? AND memory = ?", memory)
        row["tokens_after"] = value and value["top_tokens"]
        spelt = spellings(tables, _tokens_of(row, _SHOWN))
        triggers = {side: _triggers(tables, memory, table) for side, table in _TABLES.items()}
        before = tables.study.manifest["stages"]["diff"]["base"]
    panel: dict[str, Any] = {
        "heads": ["Quantity", f"Before: {before['source'] or before['family']}", "After: this model"],
        "kinds": ["text", "text", "text"],
        "rows": [["memory", _partner(row) or "none", str(memory)], *_quantities(row), *_promoted(row, spelt)],
    }
    if any(triggers.values()):
        panel["more"] = {
            "title": "Top triggers, before and after",
            "heads": ["Rank", "Before", "Trigger before", "After", "Trigger after"],
            "kinds": ["count", "real", "text", "real", "text"],
            "rows": [
                [rank, *_place(triggers["before"].get(rank)), *_place(triggers["after"].get(rank))]
                for rank in range(1, _SHOWN + 1)
                if any(rank in side for side in triggers.values())
            ],
        }
    return panel


def _quantities(row: dict[str, Any]) -> list[list[str]]:
    """What is compared, first of both memories, then of the pair."""
    of_both = (
        ("mean coefficient", "mean", ".4g"),
        ("fires on this share of prefixes", "firing", ".2%"),
        ("writes, root mean square", "contribution", ".3g"),
    )
    of_pair = (
        ("change of what it writes, relative to its layer", "change", ".3g"),
        ("correlation of coefficients", "correlation", ".3f"),
        ("cosine of gates", "gate_cosine", ".3f"),
        ("cosine of keys", "key_cosine", ".3f"),
        ("cosine of values", "value_cosine", ".3f"),
        ("triggers kept", "triggers_kept", ".0%"),
        ("rank of the top token before", "rank_of_top", ",d"),
    )
    rows = [[label, *(_form(row[f"{name}_{side}"], form) for side in _TABLES)] for label, name, form in of_both]
    return rows + [[label, "", _form(row[name], form)] for label, name, form in of_pair if row[name] is not None]


def _form(number: float | int | None, form: str) -> str:
    return "–" if number is None else f"{number:{form}}"


def _promoted(row: dict[str, Any], spelt: dict[int, str]) -> list[list[str]]:
    sides = [_spelt(row[f"tokens_{side}"], _SHOWN, spelt) for side in _TABLES]
    return [["promotes", *("  ".join(tokens) for tokens in sides)]] if any(sides) else []


def _triggers(tables: Tables, memory: Memory, table: str) -> dict[int, Trigger]:
    rows = tables.rows(
        f"SELECT rank, coefficient, sentence, position FROM {table} WHERE layer = ? AND memory = ? AND rank <= ? ORDER BY rank",
        [*memory, _SHOWN],
    )
    return {trigger.rank: trigger for trigger in with_text(tables, rows)}


def _place(trigger: Trigger | None) -> tuple[float | None, str | None]:
    return (None, None) if trigger is None else (trigger.coefficient, f"{trigger.before}{trigger.token}"[-300:])


def compared_memories(tables: Tables) -> dict[str, Array]:
    """What the figures show of every memory; missing numbers are NaN."""
    names = ("correlation", "baseline", "key_cosine", "value_cosine", "triggers_kept")
    return tables.arrays(
        f"SELECT layer, {', '.join(names)}, top_kept::INT::DOUBLE AS top_kept FROM diff ORDER BY layer, memory"
    )
