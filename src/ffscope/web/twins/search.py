"""What a search found."""

from dataclasses import dataclass
from typing import Any

from ffscope.live.responses import Promoters
from ffscope.memory_name import Memory
from ffscope.queries.layer import measures_of
from ffscope.queries.search import Promoted, Wanted, search
from ffscope.queries.tables import Tables
from ffscope.tokens import Token
from ffscope.web.twins.rows import Row, shown


@dataclass(frozen=True)
class MatchRow:
    """A memory with its measures; null are those of stages that have not been done, or all where it was left out of the study.

    `promoted` is the token that was asked for, `logit` its logit in the value above the mean of all tokens, which only the model
    knows.
    """

    memory: str
    hits: int | None = None
    trigger: Row | None = None
    promoted: Promoted | None = None
    logit: float | None = None
    fires: float | None = None
    mean: float | None = None
    maximum: float | None = None
    dead: bool | None = None
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


@dataclass(frozen=True)
class TokenTwin:
    """The memories that promote a token most, of how many: the highest logit above the mean of all tokens first."""

    token: Token
    count: int
    vocabulary: int
    rows: list[MatchRow]


def search_twin(tables: Tables, wanted: Wanted) -> SearchTwin:
    """The memories that match."""
    found = search(tables, wanted)
    rows = [
        MatchRow(
            one.memory, one.hits, None if one.trigger is None else shown(one.trigger), one.promoted, **one.measures
        )
        for one in found.rows
    ]
    return SearchTwin(found.count, round(1000 * found.seconds), rows, vars(wanted))


def token_twin(tables: Tables, ranked: Promoters) -> TokenTwin:
    """The model's answer, with what the study knows of every memory."""
    known = measures_of(tables, [Memory.parse(row.memory) for row in ranked.rows])
    rows = [
        MatchRow(
            row.memory,
            promoted=Promoted(ranked.token.token, row.rank, row.probability),
            logit=row.logit,
            **known.get(row.memory, {}),
        )
        for row in ranked.rows
    ]
    return TokenTwin(ranked.token, ranked.memories, ranked.vocabulary, rows)
