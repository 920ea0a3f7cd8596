"""Search for memories by the text of their triggers, the tokens they promote, their patterns and their measures."""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ffscope.errors import InputError
from ffscope.memory_name import Memory, parse_layers
from ffscope.queries.measures import RANGE_KINDS, expression, joined, measures_in, measures_of_kind, selected, stage_of
from ffscope.queries.prefixes import Trigger, with_text
from ffscope.queries.tables import Tables, Where, reading, spellings
from ffscope.stages.registry import measures
from ffscope.tokens import find_tokens

_OWN_SORTS = ("hits", "rank", "probability", "memory")
_RISING = ("rank", "memory")  # smallest first; measures declare their own order
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"\s*({_NUMBER})?\s*\.\.\s*({_NUMBER})?\s*", re.ASCII)
_MOST, _LONGEST = 1000, 1000  # rows of a result, characters of a text


def ranges() -> tuple[str, ...]:
    """The measures that are filtered by a range."""
    return measures_of_kind(*RANGE_KINDS)


def answers() -> tuple[str, ...]:
    """The measures that are filtered by yes or no."""
    return measures_of_kind("answer")


def sorts() -> tuple[str, ...]:
    """The keys by which matches can be sorted."""
    return (*_OWN_SORTS, *ranges())


def choices() -> dict[str, tuple[str, ...]]:
    """The measures that are filtered by a choice, with their choices; "none" selects memories without a value."""
    return {name: measures()[name][1].choices for name in measures_of_kind("choice")}


@dataclass(frozen=True)
class SearchQuery:
    """Conditions on memories, all of which must be met; those left out are ignored.

    `trigger`: the text of a prefix contains this, ignoring case. `promotes`: one of the value's 20 top tokens is this one, spelt as
    on the pages or as typed; with `loose`, ignoring case and surrounding white space. `pattern`: a description contains this,
    ignoring case. `ranges` are the lower and upper bounds of measures, either of which may be None.
    """

    trigger: str = ""
    promotes: str = ""
    loose: bool = False
    pattern: str = ""
    layers: str = ""
    choices: dict[str, str] = field(default_factory=dict)
    answers: dict[str, bool] = field(default_factory=dict)
    ranges: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    sort: str = ""
    limit: int = 100
    offset: int = 0

    @property
    def measures(self) -> list[str]:
        """The measures that it sorts or filters by."""
        names = (self.sort.removeprefix("-"), *self.ranges, *self.answers, *self.choices)
        return [name for name in dict.fromkeys(names) if name in measures()]

    @classmethod
    def parse(cls, texts: Mapping[str, str], *, limit: int = 100, offset: int = 0) -> "SearchQuery":
        """From texts: `{"trigger": "climate", "agrees": "yes", "precision": "0.2.."}`; an empty text counts as left out."""
        conditions = {name: text for name, text in texts.items() if text}
        too_long = next((name for name, text in conditions.items() if len(text) > _LONGEST), None)
        if too_long is not None:
            raise InputError(
                f"{too_long} has {len(conditions[too_long]):,} characters; at most {_LONGEST:,} are allowed. Shorten it."
            )
        if conditions.get("sort", sorts()[0]).removeprefix("-") not in sorts():
            raise InputError(
                f"Results cannot be sorted by {conditions['sort']!r}. Choose one of: {', '.join(sorts())}."
            )
        text_conditions = {
            name: conditions.get(name, "") for name in ("trigger", "promotes", "pattern", "layers", "sort")
        }
        return cls(
            **text_conditions,
            loose=_answer("loose", conditions.get("loose", "no")),
            choices={
                name: _choice(name, conditions[name], allowed)
                for name, allowed in choices().items()
                if name in conditions
            },
            answers={name: _answer(name, conditions[name]) for name in answers() if name in conditions},
            ranges={name: _range(name, conditions[name]) for name in ranges() if name in conditions},
            limit=min(max(limit, 1), _MOST),
            offset=max(offset, 0),
        )


@dataclass(frozen=True)
class Promoted:
    """A token, with its rank (from 1) and its probability in a value."""

    token: str
    rank: int
    probability: float


@dataclass(frozen=True)
class Match:
    """A memory that matches: the number of its triggers that contain the text, the first of these, the promoted token, and all its
    measures. If several tokens match loosely, `promoted` is the one with the best rank."""

    memory: str
    hits: int | None
    trigger: Trigger | None
    promoted: Promoted | None
    measures: dict[str, Any]


@dataclass(frozen=True)
class Matches:
    """The number of memories that match, and a page of them."""

    count: int
    seconds: float
    rows: list[Match]


def search(where: Where, query: SearchQuery) -> Matches:
    """The memories that match all conditions."""
    start = time.perf_counter()
    with reading(where) as tables:
        tables.study.need("triggers")
        for stage in _stages(query):
            tables.study.need(stage)
        parameters: dict[str, Any] = {}
        filters = [*_words(tables, query, parameters), *_measures(query, parameters)]
        containing = {"containing": tables.trigger_text.containing(tables, query.trigger)} if query.trigger else {}
        columns, joins = zip(_hits(query), _matched(tables, query, parameters), strict=True)
        sorted_by, order = _order(tables, query)
        # All measures are computed only for the few memories that are returned.
        statement = f"""
            WITH matches AS (
                SELECT memories.layer, memories.memory, {", ".join(columns)}, count(*) OVER () AS match_count,
                    row_number() OVER (ORDER BY {order}) AS place
                {joined(tables, _stages(query, sorted_by))} {" ".join(joins)} {"WHERE " + " AND ".join(filters) if filters else ""}
                ORDER BY place LIMIT {query.limit} OFFSET {query.offset}
            )
            SELECT f.*, {", ".join(selected(tables))}
            {joined(tables)} JOIN matches f USING (layer, memory) ORDER BY f.place
        """
        answer = tables.execute(statement, parameters, **containing)
        names = [column[0] for column in answer.description]
        rows = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
        count = rows[0]["match_count"] if rows else 0
        if not rows and query.offset:  # the offset is past the end, so the total is counted separately
            count = search(tables, replace(query, offset=0, limit=1)).count
        return Matches(count, time.perf_counter() - start, _matches(tables, rows))


def _words(tables: Tables, query: SearchQuery, parameters: dict[str, Any]) -> list[str]:
    filters = []
    if query.layers:
        parameters["layers"] = parse_layers(query.layers, len(tables.study.manifest["model"]["memories"]))
        filters.append("memories.layer IN (SELECT unnest($layers::INT[]))")
    if query.pattern:
        parameters["pattern"] = query.pattern
        filters.append(
            """(memories.layer, memories.memory) IN (
            SELECT (layer, memory) FROM patterns WHERE contains(lower(description), lower($pattern)))"""
        )
    return filters


def _hits(query: SearchQuery) -> tuple[str, str]:
    """The columns for the triggers that contain the text, and the join that provides them."""
    return (
        ("h.hits, h.best", "JOIN containing h USING (layer, memory)")
        if query.trigger
        else ("NULL AS hits, NULL AS best", "")
    )


def _matched(tables: Tables, query: SearchQuery, parameters: dict[str, Any]) -> tuple[str, str]:
    """The columns for the promoted token that matches, and the join that provides them."""
    names = ("token", "rank", "probability")
    if not query.promotes:
        return ", ".join(f"NULL AS {name}" for name in names), ""
    if query.loose:
        parameters["promotes"] = query.promotes
        tokens = f"SELECT token FROM vocabulary WHERE {_loosely('text')} = {_loosely('$promotes')}"
    else:
        parameters["promotes"] = find_tokens(tables.vocabulary, query.promotes)
        tokens = "SELECT unnest($promotes::INT[])"
    best = ", ".join(f"arg_min({name}, rank) AS {name}" for name in names)
    matched = f"SELECT layer, memory, {best} FROM promoted WHERE token IN ({tokens}) GROUP BY layer, memory"
    return ", ".join(f"k.{name}" for name in names), f"JOIN ({matched}) k USING (layer, memory)"


def _loosely(text: str) -> str:
    return f"lower(trim({text}, '␣⏎⇥⍽ '))"


def _measures(query: SearchQuery, parameters: dict[str, Any]) -> list[str]:
    filters = []
    for name, choice in query.choices.items():
        if choice == "none":
            filters.append(f"{expression(name)} IS NULL")
        else:
            parameters[f"{name}_{len(parameters)}"] = choice
            filters.append(f"{expression(name)} = ${list(parameters)[-1]}")
    for name, expected in query.answers.items():
        filters.append(f"{expression(name)} = {'true' if expected else 'false'}")
    for name, ends in query.ranges.items():
        for end, sign in zip(ends, (">=", "<="), strict=True):
            if end is not None:
                parameters[f"{name}_{len(parameters)}"] = end
                filters.append(f"{expression(name)} {sign} ${list(parameters)[-1]}")
    return filters


def _stages(query: SearchQuery, *more: str) -> set[str]:
    """The stages that a query needs; `more` are further measures that are needed."""
    stages = {stage_of(name) for name in (*query.measures, *more) if name in measures()}
    stages |= {"values"} if query.promotes else set()
    return stages | ({"patterns"} if query.pattern else set())


def _order(tables: Tables, query: SearchQuery) -> tuple[str, str]:
    """The sort key and its SQL: largest first, except for names and ranks; a minus reverses the order."""
    name = query.sort or _default_sort(tables, query)
    reversed_order, name = name.startswith("-"), name.removeprefix("-")
    rising = name in _RISING or (name in measures() and measures()[name][1].rising)
    direction, opposite = ("ASC", "DESC") if rising != reversed_order else ("DESC", "ASC")
    if name == "memory":
        return name, f"memories.layer {direction}, memories.memory {direction}"
    if name == "rank" and query.promotes:
        return name, f"k.rank {direction}, k.probability {opposite} NULLS LAST, memories.layer, memories.memory"
    own = {"hits": "h.hits"} if query.trigger else {}
    own |= {"probability": "k.probability"} if query.promotes else {}
    column = own.get(name) or (expression(name) if name in measures() else "NULL::INT")
    return name, f"{column} {direction} NULLS LAST, memories.layer, memories.memory"


def _default_sort(tables: Tables, query: SearchQuery) -> str:
    if query.promotes:
        return "rank"
    return "hits" if query.trigger else "max_prob" if tables.study.has("values") else "fires"


def _matches(tables: Tables, rows: list[dict[str, Any]]) -> list[Match]:
    best = [(row["layer"], row["memory"], row["best"]) for row in rows if row["best"] is not None]
    trigger_keys = tables.rows(
        """
        SELECT layer, memory, rank, coefficient, sentence, position FROM triggers
        JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory, unnest(?::INT[]) AS rank) USING (layer, memory, rank)
        """,
        [[key[part] for key in best] for part in range(3)],
    )
    triggers = dict(
        zip((row[:2] for row in trigger_keys), with_text(tables, [row[2:] for row in trigger_keys]), strict=True)
    )
    spelt = spellings(tables, (row["token"] for row in rows if row["token"] is not None))
    available = measures_in(tables)  # once, since this checks on disk which stages are done
    return [
        Match(
            memory=str(Memory(row["layer"], row["memory"])),
            hits=row["hits"],
            trigger=triggers.get((row["layer"], row["memory"])),
            promoted=None if row["token"] is None else Promoted(spelt[row["token"]], row["rank"], row["probability"]),
            measures={name: row[name] for name in available},
        )
        for row in rows
    ]


def _choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    if text not in allowed:
        raise InputError(f"There is no {name} {text!r}. Choose one of: {', '.join(allowed)}.")
    return text


def _answer(name: str, text: str) -> bool:
    values = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in values:
        raise InputError(f"{name} must be yes or no, not {text[:40]!r}.")
    return values[text.lower()]


def _range(name: str, text: str) -> tuple[float | None, float | None]:
    match = _RANGE.fullmatch(text)
    ends = [None if end is None else float(end) for end in match.groups()] if match else []
    if match is None or not any(end is not None for end in ends) or any(map(math.isinf, filter(None, ends))):
        raise InputError(f"{name} must be a range such as 0.2..0.5, 0.2.. or ..0.5, not {text[:40]!r}.")
    return ends[0], ends[1]
