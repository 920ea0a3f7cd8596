"""One memory: its triggers, a sample of the prefixes on which it fires, its value and counts."""

import secrets
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ffscope.errors import MemoryNameError
from ffscope.memory_name import Memory
from ffscope.queries.gist import gist
from ffscope.queries.patterns import Found, patterns_of
from ffscope.queries.prefixes import Trigger, listed, told
from ffscope.queries.tables import Tables, Where, checked, reading, spellings


@dataclass(frozen=True)
class Value:
    """What a value promotes, with probabilities, and suppresses; and whether that is what follows its key's triggers."""

    norm: float
    promotes: list[tuple[str, float]]
    suppresses: list[str]
    agrees: bool | None  # None where the memory has no trigger, or agreement has not been looked at
    next_rank: int | None  # of the token that follows its top trigger, in the value
    vocabulary: int | None  # how many tokens are ranked; None where the model has no unembedding
    precision: float | None
    token: int | None  # the first of the promoted


@dataclass(frozen=True)
class MemoryPage:
    """What a study knows of one memory. `fired` of `seen` prefixes had a coefficient above 0."""

    memory: str
    gist: str  # what it does, in one line
    model: str
    dtype: str
    seen: int
    fired: int
    mean: float
    maximum: float
    histogram: list[int]
    value: Value | None  # None where the values have not been read
    patterns: list[Found] | None  # None where nobody has looked for them
    triggers: list[Trigger]
    sample: list[Trigger]
    negative: list[Trigger]


def memory_page(where: Where, name: str) -> MemoryPage:
    """One memory's triggers, a sample of the prefixes on which it fires, and counts."""
    with reading(where) as tables:
        study, memory = tables.study, Memory.parse(name)
        counted = searched(tables, memory)
        negative = listed(tables, "negative_triggers", memory) if tables.has("negative_triggers") else []
        triggers, sample = listed(tables, "triggers", memory), _sampled(counted)
        value = _value(tables, memory) if study.has("values") else None
        patterns = patterns_of(tables, memory)
        read = iter(told(tables, [*triggers, *sample, *negative]))  # at once, which is quicker
        return MemoryPage(
            memory=str(memory),
            gist=gist(patterns, [token for token, _ in value.promotes] if value else None, dead=not triggers),
            model=study.manifest["model"]["source"] or study.manifest["model"]["family"],
            dtype=study.manifest["model"]["dtype"],
            **{name: counted[name] for name in ("seen", "fired", "mean", "maximum", "histogram")},
            value=value,
            patterns=patterns,
            triggers=list(islice(read, len(triggers))),
            sample=list(islice(read, len(sample))),
            negative=list(read),
        )


def searched(tables: Tables, memory: Memory) -> dict[str, Any]:
    """What was counted of a memory; refused where the search left it out."""
    checked(tables.study, memory)
    counted = tables.row("SELECT * FROM memories WHERE layer = ? AND memory = ?", memory)
    if counted is None:
        raise MemoryNameError(
            f"{memory} was not searched in {tables.study.folder}: the search was restricted to other memories."
        )
    return counted


def maximum_of(tables: Tables, memory: Memory) -> float | None:
    """The highest coefficient that the search saw; None where it left the memory out."""
    found = tables.rows("SELECT maximum FROM memories WHERE layer = ? AND memory = ?", memory)
    return found[0][0] if found else None


def neighbours(tables: Tables, memory: Memory) -> tuple[str | None, str | None]:
    """The searched memories before and after one; None at the ends."""
    query = "SELECT layer, memory FROM memories WHERE (layer, memory) {} (?, ?) ORDER BY layer {}, memory {} LIMIT 1"
    before = tables.rows(query.format("<", "DESC", "DESC"), memory)
    after = tables.rows(query.format(">", "ASC", "ASC"), memory)
    return str(Memory(*before[0])) if before else None, str(Memory(*after[0])) if after else None


def random_memory(tables: Tables) -> str:
    """Any searched memory, another each time."""
    count = tables.rows("SELECT count(*) FROM memories")[0][0]
    row = tables.rows("SELECT layer, memory FROM memories LIMIT 1 OFFSET ?", [secrets.randbelow(count)])[0]
    return str(Memory(*row))


def _sampled(counted: dict[str, Any]) -> list[tuple[Any, ...]]:
    columns = (counted[f"sample_{what}"] for what in ("coefficients", "sentences", "positions"))
    return [(rank, *place) for rank, place in enumerate(zip(*columns, strict=True), 1)]


def _value(tables: Tables, memory: Memory) -> Value:
    query = "SELECT norm, top_tokens, top_probs, bottom_tokens FROM values WHERE layer = ? AND memory = ?"
    norm, top, probabilities, bottom = tables.rows(query, memory)[0]
    top, probabilities, bottom = top or [], probabilities or [], bottom or []  # a model may have no unembedding
    spelt = spellings(tables, [*top, *bottom])
    said = [spelt.get(token, f"#{token}") for token in (*top, *bottom)]
    return Value(
        norm=norm,
        promotes=list(zip(said[: len(top)], probabilities, strict=True)),
        suppresses=said[len(top) :],
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
