"""What a person has marked of a memory so far, step by step: nothing is lost, and all can be undone."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ffscope.annotating.records import adding, checked_annotator, done_by, opened_if_there
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.queries import checked
from ffscope.study.folder import Study

_TABLE = """CREATE TABLE IF NOT EXISTS draft (id INTEGER PRIMARY KEY AUTOINCREMENT, layer INTEGER NOT NULL, memory INTEGER NOT NULL,
    annotator TEXT NOT NULL, made TEXT NOT NULL, content TEXT NOT NULL)"""
_LONGEST = 20_000  # characters of one step
_STEPS = 100  # that can be gone back


@dataclass(frozen=True)
class DraftPattern:
    """A pattern that may still lack its kind, its words or its prefixes."""

    kind: str | None
    description: str
    covers: list[int]


@dataclass(frozen=True)
class Draft:
    """What was marked at one time. `none`: the person sees no pattern."""

    patterns: list[DraftPattern]
    none: bool
    made: str  # UTC, ISO 8601


def save(study: Study, annotator: str, memory: Memory, patterns: list[DraftPattern], *, none: bool) -> Draft:
    """Keep a step. It need not be whole: only what is done is held to the rules."""
    annotator, memory = checked_annotator(annotator), checked(study, memory)
    content = json.dumps({"patterns": [vars(one) for one in patterns], "none": none})
    if len(content) > _LONGEST:
        raise InputError(f"A step has at most {_LONGEST:,} characters; this one has {len(content):,}. Write less.")
    made = datetime.now(UTC).isoformat(timespec="milliseconds")
    with adding(study) as database:
        database.execute(_TABLE)
        row = (*memory, annotator, made, content)
        database.execute("INSERT INTO draft (layer, memory, annotator, made, content) VALUES (?, ?, ?, ?, ?)", row)
    return Draft(patterns, none, made)


def reader(study: Study, name: str) -> str:
    """Whose drafts and annotations are read: someone who signed before, under whatever name, or a name that may be signed with."""
    signed = {*done_by(study), *(row[0] for row in _asked(study, "SELECT DISTINCT annotator FROM draft", ()))}
    return name if name in signed else checked_annotator(name)


def steps(study: Study, annotator: str, memory: Memory) -> list[Draft]:
    """The last steps of a person on a memory, oldest first."""
    query = "SELECT made, content FROM draft WHERE annotator = ? AND layer = ? AND memory = ? ORDER BY id DESC LIMIT ?"
    rows = _asked(study, query, (annotator, *memory, _STEPS))
    return [_draft(made, json.loads(content)) for made, content in reversed(rows)]


def begun(study: Study, annotator: str) -> dict[Memory, str]:
    """The memories on which a person has taken steps, and when the last was."""
    query = "SELECT layer, memory, max(made) FROM draft WHERE annotator = ? GROUP BY layer, memory"
    rows = _asked(study, query, (annotator,))
    return {Memory(layer, memory): made for layer, memory, made in rows}


def _asked(study: Study, query: str, given: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    with opened_if_there(study) as database:
        if database is None or not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'draft'").fetchone():
            return []
        return database.execute(query, given).fetchall()


def _draft(made: str, content: dict[str, Any]) -> Draft:
    return Draft([DraftPattern(**one) for one in content["patterns"]], content["none"], made)
