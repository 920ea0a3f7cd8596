"""A person's unfinished annotations. Every change is saved, so that nothing is lost and each can be undone."""

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from ffscope.annotating.records import checked_annotator
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.queries.annotations import done_by, draft_annotators, drafts_of, insert_draft
from ffscope.queries.tables import checked
from ffscope.study.folder import Study

_LONGEST = 20_000  # characters of one draft
_STEPS = 100  # that can be undone


@dataclass(frozen=True)
class DraftPattern:
    """A pattern that may still lack its kind, its description or its prefixes."""

    kind: str | None
    description: str
    covers: list[int]


@dataclass(frozen=True)
class Draft:
    """An annotation as it was at one time. `none`: the person sees no pattern."""

    patterns: list[DraftPattern]
    none: bool
    made: str  # UTC, ISO 8601; a key of the page's JSON


def save(study: Study, annotator: str, memory: Memory, patterns: list[DraftPattern], *, none: bool) -> Draft:
    """Save a draft. It may be incomplete: only finished annotations are checked."""
    annotator, memory = checked_annotator(annotator), checked(study, memory)
    content = json.dumps({"patterns": [vars(pattern) for pattern in patterns], "none": none})
    if len(content) > _LONGEST:
        raise InputError(
            f"A draft has at most {_LONGEST:,} characters; this one has {len(content):,}. Shorten the descriptions."
        )
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    insert_draft(study, annotator, memory, time, content)
    return Draft(patterns, none, time)


def checked_reader(study: Study, name: str) -> str:
    """An annotator whose work is read: any name that has annotated before, or else a valid one."""
    return name if name in {*done_by(study), *draft_annotators(study)} else checked_annotator(name)


def steps(study: Study, annotator: str, memory: Memory) -> list[Draft]:
    """The latest drafts of a person for a memory, oldest first."""
    rows = drafts_of(study, annotator, memory, count=_STEPS)
    return [_draft(time, json.loads(content)) for time, content in rows]


def _draft(time: str, content: dict[str, Any]) -> Draft:
    return Draft([DraftPattern(**pattern) for pattern in content["patterns"]], content["none"], time)
