"""What a search found."""

from dataclasses import dataclass
from typing import Any

from ffscope.queries import Tables
from ffscope.queries.search import Wanted, search
from ffscope.web.twins.rows import Row, shown


@dataclass(frozen=True)
class MatchRow:
    """A memory that was found, with its measures; those of stages that have not been done are null."""

    memory: str
    hits: int | None
    trigger: Row | None
    fires: float
    mean: float
    maximum: float
    dead: bool
    top: str | None = None
    max_prob: float | None = None
    norm: float | None = None
    agrees: bool | None = None
    next_rank: int | None = None
    precision: float | None = None
    patterns: int | None = None
    kind: str | None = None
    pattern: str | None = None


@dataclass(frozen=True)
class SearchTwin:
    """How many memories match, in how long, and some of them."""

    count: int
    milliseconds: int
    rows: list[MatchRow]
    asked: dict[str, Any]


def search_twin(tables: Tables, wanted: Wanted) -> SearchTwin:
    """The memories that match."""
    found = search(tables, wanted)
    rows = [
        MatchRow(one.memory, one.hits, None if one.trigger is None else shown(one.trigger), **one.measures)
        for one in found.rows
    ]
    return SearchTwin(found.count, round(1000 * found.seconds), rows, vars(wanted))
