"""What a person has marked of a memory so far, step by step: nothing is lost, and all can be undone."""

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
    insert_draft(study, annotator, memory, made, content)
    return Draft(patterns, none, made)


def reader(study: Study, name: str) -> str:
    """Whose drafts and annotations are read: someone who signed before, under whatever name, or a name that may be signed with."""
    return name if name in {*done_by(study), *draft_annotators(study)} else checked_annotator(name)


def steps(study: Study, annotator: str, memory: Memory) -> list[Draft]:
    """The last steps of a person on a memory, oldest first."""
    kept = drafts_of(study, annotator, memory, count=_STEPS)
    return [_draft(made, json.loads(content)) for made, content in kept]


def _draft(made: str, content: dict[str, Any]) -> Draft:
    return Draft([DraftPattern(**one) for one in content["patterns"]], content["none"], made)
