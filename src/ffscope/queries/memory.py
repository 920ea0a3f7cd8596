"""One memory: its triggers, a sample of the prefixes on which it fires, its value and its counts."""

import secrets
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ffscope.errors import MemoryNameError
from ffscope.memory_name import Memory
from ffscope.queries.gist import gist
from ffscope.queries.patterns import AnnotatedPattern, patterns_of
from ffscope.queries.prefixes import Trigger, trigger_rows, with_text
from ffscope.queries.tables import Tables, Where, checked, reading, spellings


@dataclass(frozen=True)
class Value:
    """The tokens that a value promotes, with probabilities, and suppresses, and its agreement with its key's triggers."""

    norm: float
    promotes: list[tuple[str, float]]
    suppresses: list[str]
    agrees: bool | None  # None if the memory has no trigger, or the agreement stage has not been run
    next_rank: int | None  # rank in the value of the token that follows the top trigger
    vocabulary: int | None  # number of ranked tokens; None if the model has no unembedding
    precision: float | None
    token: int | None  # the top promoted token


@dataclass(frozen=True)
class MemoryPage:
    """What a study contains on one memory. `fired` of `seen` prefixes had a coefficient above 0."""

    memory: str
    gist: str  # a one-line summary
    model: str
    dtype: str
    seen: int
    fired: int
    mean: float
    maximum: float
    histogram: list[int]
    value: Value | None  # None before the values stage
    patterns: list[AnnotatedPattern] | None  # None before the patterns stage, without annotations
    triggers: list[Trigger]
    sample: list[Trigger]
    negative: list[Trigger]


def memory_page(where: Where, name: str) -> MemoryPage:
    """The triggers of a memory, a sample of the prefixes on which it fires, its value, patterns and counts."""
    with reading(where) as tables:
        study, memory = tables.study, Memory.parse(name)
        counts = searched(tables, memory)
        negative = trigger_rows(tables, "negative_triggers", memory) if tables.has("negative_triggers") else []
        triggers, sample = trigger_rows(tables, "triggers", memory), _sampled(counts)
        value = _value(tables, memory) if study.has("values") else None
        patterns = patterns_of(tables, memory)
        texts = iter(with_text(tables, [*triggers, *sample, *negative]))  # in one query, which is faster
        return MemoryPage(
            memory=str(memory),
            gist=gist(patterns, [token for token, _ in value.promotes] if value else None, dead=not triggers),
            model=study.manifest["model"]["source"] or study.manifest["model"]["family"],
            dtype=study.manifest["model"]["dtype"],
            **{name: counts[name] for name in ("seen", "fired", "mean", "maximum", "histogram")},
            value=value,
            patterns=patterns,
            triggers=list(islice(texts, len(triggers))),
            sample=list(islice(texts, len(sample))),
            negative=list(texts),
        )


def searched(tables: Tables, memory: Memory) -> dict[str, Any]:
    """The counts of a memory; raises if it was not searched."""
    checked(tables.study, memory)
    counts = tables.row("SELECT * FROM memories WHERE layer = ? AND memory = ?", memory)
    if counts is None:
        raise MemoryNameError(
            f"{memory} was not searched in {tables.study.folder}: the search was restricted to other memories. Name one of those."
        )
    return counts


def maximum_of(tables: Tables, memory: Memory) -> float | None:
    """The highest coefficient found by the search; None if the memory was not searched."""
    rows = tables.rows("SELECT maximum FROM memories WHERE layer = ? AND memory = ?", memory)
    return rows[0][0] if rows else None


def neighbours(tables: Tables, memory: Memory) -> tuple[str | None, str | None]:
    """The previous and the next searched memory; None at the ends."""
    query = "SELECT layer, memory FROM memories WHERE (layer, memory) {} (?, ?) ORDER BY layer {}, memory {} LIMIT 1"
    before = tables.rows(query.format("<", "DESC", "DESC"), memory)
    after = tables.rows(query.format(">", "ASC", "ASC"), memory)
    return str(Memory(*before[0])) if before else None, str(Memory(*after[0])) if after else None


def random_memory(tables: Tables) -> str:
    """A random searched memory."""
    count = tables.rows("SELECT count(*) FROM memories")[0][0]
    row = tables.rows("SELECT layer, memory FROM memories LIMIT 1 OFFSET ?", [secrets.randbelow(count)])[0]
    return str(Memory(*row))


def _sampled(counts: dict[str, Any]) -> list[tuple[Any, ...]]:
    columns = (counts[f"sample_{what}"] for what in ("coefficients", "sentences", "positions"))
    return [(rank, *place) for rank, place in enumerate(zip(*columns, strict=True), 1)]


def _value(tables: Tables, memory: Memory) -> Value:
    query = "SELECT norm, top_tokens, top_probs, bottom_tokens FROM values WHERE layer = ? AND memory = ?"
    norm, top, probabilities, bottom = tables.rows(query, memory)[0]
    top, probabilities, bottom = top or [], probabilities or [], bottom or []  # None if the model has no unembedding
    spelt = spellings(tables, [*top, *bottom])
    texts = [spelt.get(token, f"#{token}") for token in (*top, *bottom)]
    return Value(
        norm=norm,
        promotes=list(zip(texts[: len(top)], probabilities, strict=True)),
        suppresses=texts[len(top) :],
        token=top[0] if top else None,
        vocabulary=tables.study.manifest["model"]["vocab"],
        **_agreement(tables, memory),
    )


def _agreement(tables: Tables, memory: Memory) -> dict[str, Any]:
    names = ("agrees", "next_rank", "precision")
    if not tables.has("agreement"):
        return dict.fromkeys(names)
    query = f"SELECT {', '.join(names)} FROM agreement WHERE layer = ? AND memory = ?"
    return tables.row(query, memory) or dict.fromkeys(names)
