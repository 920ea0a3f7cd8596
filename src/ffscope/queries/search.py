"""Memories by what they do: the text of their triggers, the tokens that they promote, their patterns, the range of any measure."""

import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ffscope.errors import InputError
from ffscope.memory_name import Memory, parse_layers
from ffscope.queries.measures import RANGE_KINDS, expression, joined, measures_in, measures_of_kind, selected, stage_of
from ffscope.queries.prefixes import Trigger, told
from ffscope.queries.tables import Tables, Where, reading, spellings
from ffscope.stages.registry import measures
from ffscope.tokens import find_tokens

_OWN_SORTS = ("hits", "rank", "probability", "memory")
_RISING = ("rank", "memory")  # the smaller first; measures say it themselves
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?"
_RANGE = re.compile(rf"\s*({_NUMBER})?\s*\.\.\s*({_NUMBER})?\s*", re.ASCII)
_MOST, _LONGEST = 1000, 1000  # rows of an answer, characters of a text


def ranges() -> tuple[str, ...]:
    """The measures that are searched by a range."""
    return measures_of_kind(*RANGE_KINDS)


def answers() -> tuple[str, ...]:
    """The measures that are searched by yes or no."""
    return measures_of_kind("answer")


def sorts() -> tuple[str, ...]:
    """What matches can be sorted by."""
    return (*_OWN_SORTS, *ranges())


def choices() -> dict[str, tuple[str, ...]]:
    """The measures that are searched by a choice, each with what can be chosen; "none" is of memories without one."""
    return {name: measures()[name][1].choices for name in measures_of_kind("choice")}


@dataclass(frozen=True)
class Wanted:
    """What memories are looked for. Every part narrows the search; a part that is left out does not.

    `trigger`: the text of a prefix contains this, whatever its case. `promotes`: one of the value's 20 top tokens is this one, in
    the spelling of all pages or as typed; with `loose`, whatever its case and the white space around it. `pattern`: a description
    contains this, whatever its case. `ranges` are measures with their ends, either of which may be None.
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

    @classmethod
    def parse(cls, said: Mapping[str, str], *, limit: int = 100, offset: int = 0) -> "Wanted":
        """From words: `{"trigger": "climate", "agrees": "yes", "precision": "0.2.."}`; an empty one counts as left out."""
        given = {name: text for name, text in said.items() if text}
        long = next((name for name, text in given.items() if len(text) > _LONGEST), None)
        if long is not None:
            raise InputError(f"{long} has {len(given[long]):,} characters; at most {_LONGEST:,} are looked for.")
        if given.get("sort", sorts()[0]).removeprefix("-") not in sorts():
            raise InputError(f"Nothing is sorted by {given['sort']!r}. Choose one of: {', '.join(sorts())}.")
        words = {name: given.get(name, "") for name in ("trigger", "promotes", "pattern", "layers", "sort")}
        return cls(
            **words,
            loose=_answer("loose", given.get("loose", "no")),
            choices={name: _choice(name, given[name], known) for name, known in choices().items() if name in given},
            answers={name: _answer(name, given[name]) for name in answers() if name in given},
            ranges={name: _range(name, given[name]) for name in ranges() if name in given},
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
    """A memory that matches: how many of its triggers contain the text, the first of these, the token that its value promotes, and
    all its measures. Of several tokens that match loosely, the one with the best rank is given."""

    memory: str
    hits: int | None
    trigger: Trigger | None
    promoted: Promoted | None
    measures: dict[str, Any]


@dataclass(frozen=True)
class Matches:
    """How many memories match, and some of them."""

    count: int
    seconds: float
    rows: list[Match]


def search(where: Where, wanted: Wanted) -> Matches:
    """The memories that match everything that is asked for."""
    start = time.perf_counter()
    with reading(where) as tables:
        tables.study.need("triggers")
        for stage in _stages(wanted):
            tables.study.need(stage)
        asked: dict[str, Any] = {}
        filters = [*_words(tables, wanted, asked), *_measures(wanted, asked)]
        holding = {"holding": tables.trigger_text.holding(tables, wanted.trigger)} if wanted.trigger else {}
        columns, joins = zip(_hits(wanted), _matched(tables, wanted, asked), strict=True)
        sorted_by, order = _order(tables, wanted)
        # All measures are looked up only of the few that are shown.
        query = f"""
            WITH found AS (
                SELECT memories.layer, memories.memory, {", ".join(columns)}, count(*) OVER () AS found,
                    row_number() OVER (ORDER BY {order}) AS place
                {joined(tables, _stages(wanted, sorted_by))} {" ".join(joins)} {"WHERE " + " AND ".join(filters) if filters else ""}
                ORDER BY place LIMIT {wanted.limit} OFFSET {wanted.offset}
            )
            SELECT f.*, {", ".join(selected(tables))}
            {joined(tables)} JOIN found f USING (layer, memory) ORDER BY f.place
        """
        answer = tables.execute(query, asked, **holding)
        names = [column[0] for column in answer.description]
        rows = [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
        count = rows[0]["found"] if rows else 0
        if not rows and wanted.offset:  # nothing is there any more; how many there were is still to be said
            count = search(tables, replace(wanted, offset=0, limit=1)).count
        return Matches(count, time.perf_counter() - start, _matches(tables, rows))


def _words(tables: Tables, wanted: Wanted, asked: dict[str, Any]) -> list[str]:
    filters = []
    if wanted.layers:
        asked["layers"] = parse_layers(wanted.layers, len(tables.study.manifest["model"]["memories"]))
        filters.append("memories.layer IN (SELECT unnest($layers::INT[]))")
    if wanted.pattern:
        asked["pattern"] = wanted.pattern
        filters.append(
            """(memories.layer, memories.memory) IN (
            SELECT (layer, memory) FROM patterns WHERE contains(lower(description), lower($pattern)))"""
        )
    return filters


def _hits(wanted: Wanted) -> tuple[str, str]:
    """Columns of how many triggers contain the text, and where they come from."""
    return (
        ("h.hits, h.best", "JOIN holding h USING (layer, memory)")
        if wanted.trigger
        else ("NULL AS hits, NULL AS best", "")
    )


def _matched(tables: Tables, wanted: Wanted, asked: dict[str, Any]) -> tuple[str, str]:
    """Columns of the promoted token that matches, and where they come from."""
    names = ("token", "rank", "probability")
    if not wanted.promotes:
        return ", ".join(f"NULL AS {name}" for name in names), ""
    if wanted.loose:
        asked["promotes"] = wanted.promotes
        tokens = f"SELECT token FROM vocabulary WHERE {_loosely('text')} = {_loosely('$promotes')}"
    else:
        asked["promotes"] = find_tokens(tables.vocabulary, wanted.promotes)
        tokens = "SELECT unnest($promotes::INT[])"
    best = ", ".join(f"arg_min({name}, rank) AS {name}" for name in names)
    matched = f"SELECT layer, memory, {best} FROM promoted WHERE token IN ({tokens}) GROUP BY layer, memory"
    return ", ".join(f"k.{name}" for name in names), f"JOIN ({matched}) k USING (layer, memory)"


def _loosely(text: str) -> str:
    return f"lower(trim({text}, '␣⏎⇥⍽ '))"


def _measures(wanted: Wanted, asked: dict[str, Any]) -> list[str]:
    filters = []
    for name, choice in wanted.choices.items():
        if choice == "none":
            filters.append(f"{expression(name)} IS NULL")
        else:
            asked[f"{name}_{len(asked)}"] = choice
            filters.append(f"{expression(name)} = ${list(asked)[-1]}")
    for name, answer in wanted.answers.items():
        filters.append(f"{expression(name)} = {'true' if answer else 'false'}")
    for name, ends in wanted.ranges.items():
        for end, sign in zip(ends, (">=", "<="), strict=True):
            if end is not None:
                asked[f"{name}_{len(asked)}"] = end
                filters.append(f"{expression(name)} {sign} ${list(asked)[-1]}")
    return filters


def _stages(wanted: Wanted, *more: str) -> set[str]:
    """What must have been done for this to be known; `more` are measures that are needed beside those asked for."""
    known = measures()
    names = (*wanted.choices, *wanted.answers, *wanted.ranges, wanted.sort.removeprefix("-"), *more)
    stages = {stage_of(name) for name in names if name in known}
    stages |= {"values"} if wanted.promotes else set()
    return stages | ({"patterns"} if wanted.pattern else set())


def _order(tables: Tables, wanted: Wanted) -> tuple[str, str]:
    """What is sorted by, and that in SQL: the larger first, but for names and ranks; a minus turns it round."""
    name = wanted.sort or _default_sort(tables, wanted)
    turned, name = name.startswith("-"), name.removeprefix("-")
    rising = name in _RISING or (name in measures() and measures()[name][1].rising)
    direction, opposite = ("ASC", "DESC") if rising != turned else ("DESC", "ASC")
    if name == "memory":
        return name, f"memories.layer {direction}, memories.memory {direction}"
    if name == "rank" and wanted.promotes:
        return name, f"k.rank {direction}, k.probability {opposite} NULLS LAST, memories.layer, memories.memory"
    own = {"hits": "h.hits"} if wanted.trigger else {}
    own |= {"probability": "k.probability"} if wanted.promotes else {}
    column = own.get(name) or (expression(name) if name in measures() else "NULL::INT")
    return name, f"{column} {direction} NULLS LAST, memories.layer, memories.memory"


def _default_sort(tables: Tables, wanted: Wanted) -> str:
    if wanted.promotes:
        return "rank"
    return "hits" if wanted.trigger else "max_prob" if tables.study.has("values") else "fires"


def _matches(tables: Tables, rows: list[dict[str, Any]]) -> list[Match]:
    best = [(row["layer"], row["memory"], row["best"]) for row in rows if row["best"] is not None]
    found = tables.rows(
        """
        SELECT layer, memory, rank, coefficient, sentence, position FROM triggers
        JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory, unnest(?::INT[]) AS rank) USING (layer, memory, rank)
        """,
        [[one[part] for one in best] for part in range(3)],
    )
    triggers = dict(zip((row[:2] for row in found), told(tables, [row[2:] for row in found]), strict=True))
    spelt = spellings(tables, (row["token"] for row in rows if row["token"] is not None))
    known = measures_in(tables)  # once: whether a stage is done is asked of the disk
    return [
        Match(
            memory=str(Memory(row["layer"], row["memory"])),
            hits=row["hits"],
            trigger=triggers.get((row["layer"], row["memory"])),
            promoted=None if row["token"] is None else Promoted(spelt[row["token"]], row["rank"], row["probability"]),
            measures={name: row[name] for name in known},
        )
        for row in rows
    ]


def _choice(name: str, text: str, known: tuple[str, ...]) -> str:
    if text not in known:
        raise InputError(f"There is no {name} {text!r}. Choose one of: {', '.join(known)}.")
    return text


def _answer(name: str, text: str) -> bool:
    known = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in known:
        raise InputError(f"{name} is yes or no, not {text[:40]!r}.")
    return known[text.lower()]


def _range(name: str, text: str) -> tuple[float | None, float | None]:
    match = _RANGE.fullmatch(text)
    ends = [None if end is None else float(end) for end in match.groups()] if match else []
    if match is None or not any(end is not None for end in ends) or any(map(math.isinf, filter(None, ends))):
        raise InputError(f"{name} is a range such as 0.2..0.5, 0.2.. or ..0.5, not {text[:40]!r}.")
    return ends[0], ends[1]
