"""A sheet as JSON: a list of memories, each with its prefixes and a list of patterns to fill in."""

import json
from typing import Any

from ffscope.annotating.entries import NONE, Entry, EntryPattern, FilledSheet, instructions
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import Pattern
from ffscope.queries.prefixes import Place, Trigger
from ffscope.tokens import visible

_EXAMPLE = '{"kind": "shallow", "description": "ends with a number", "covers": [1, 3, 4]}'


def format_sheet(annotator: str, triggers: dict[Memory, list[Trigger]], command: str) -> bytes:
    """An empty sheet for some memories."""
    form = {
        "annotator": annotator,
        "how": [
            f'Fill "patterns" with objects such as {_EXAMPLE}; "covers" lists the ranks of prefixes.',
            f'If you found no pattern, set "{NONE}" to true. A memory that is left unchanged is not counted.',
            *instructions(command),
        ],
        "memories": [
            {"memory": str(memory), "prefixes": list(map(_prefix, memory_triggers)), "patterns": [], NONE: False}
            for memory, memory_triggers in triggers.items()
        ],
    }
    return f"{json.dumps(form, indent=1, ensure_ascii=False)}\n".encode()


def _prefix(trigger: Trigger) -> dict[str, Any]:
    texts = {"text": trigger.before, "token": trigger.token, "next": trigger.next_token}
    spellings = {name: visible(text, longest=None) for name, text in texts.items()}
    return {"rank": trigger.rank, **spellings, "sentence": trigger.sentence, "position": trigger.position}


def parse_sheet(content: bytes) -> FilledSheet:
    """A filled-in JSON sheet."""
    try:
        form = json.loads(content.decode("utf-8-sig"))
        annotator, memories = form.get("annotator"), list(form["memories"])
    except (ValueError, RecursionError) as error:
        raise InputError(f"The sheet cannot be read as JSON: {error}. Fix it there, or fill in the CSV.") from error
    except (AttributeError, KeyError, TypeError):
        raise InputError('The sheet has no list of "memories". Fill in the sheet that ffscope wrote.') from None
    problems: list[str] = []
    entries = [_entry(memory, f"memory {i}", problems) for i, memory in enumerate(memories, 1)]
    name = annotator if isinstance(annotator, str) else None
    return FilledSheet(name, [entry for entry in entries if entry is not None], problems)


def _entry(memory: Any, where: str, problems: list[str]) -> Entry | None:
    if not isinstance(memory, dict) or not isinstance(memory.get("memory"), str):
        problems.append(f'{where} of the list: expected "memory" with a name such as L3.17. Restore it.')
        return None
    name, patterns, none = memory["memory"], memory.get("patterns", []), memory.get(NONE, False)
    if not isinstance(patterns, list) or not isinstance(none, bool):
        problems.append(f'{name}: expected a list of "patterns", and "{NONE}" as true or false. Correct it.')
        return None
    entry_patterns = []
    for i, pattern in enumerate(patterns, 1):
        try:
            entry_patterns.append(EntryPattern(f"pattern {i}", _pattern(pattern)))
        except (KeyError, TypeError, ValueError, AttributeError):
            problems.append(f"{name}, pattern {i}: expected an object such as {_EXAMPLE}.")
    return Entry(name, where, entry_patterns, none, _places(memory.get("prefixes")))


def _pattern(pattern: Any) -> Pattern:
    kind, description, covers = pattern["kind"], pattern["description"], list(pattern["covers"])
    if any(type(rank) is not int for rank in covers):  # bool is a subclass of int
        raise TypeError(covers)
    return Pattern(kind.strip().casefold(), description.strip(), tuple(covers))


def _places(prefixes: Any) -> dict[int, Place | None]:
    """The places of the prefixes that the sheet contains; a person may have removed some."""
    places: dict[int, Place | None] = {}
    for prefix in prefixes if isinstance(prefixes, list) else ():
        if isinstance(prefix, dict) and type(rank := prefix.get("rank")) is int:
            place = (prefix.get("sentence"), prefix.get("position"))
            places[rank] = place if all(type(part) is int for part in place) else None  # type: ignore[assignment]
    return places
