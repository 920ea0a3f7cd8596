"""The content of a filled-in sheet of either format, and its checks, which report all problems at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ffscope.annotating.records import normalised
from ffscope.errors import FfscopeError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import KINDS, LEAST, MOST, TRIGGERS, Pattern
from ffscope.queries.prefixes import Place, trigger_places
from ffscope.queries.tables import checked
from ffscope.study.folder import Study

NONE = "none"  # what a person who found no pattern writes


@dataclass(frozen=True)
class EntryPattern:
    """A pattern as a person wrote it, and where in the sheet."""

    where: str
    pattern: Pattern


@dataclass(frozen=True)
class Entry:
    """One memory of a sheet. `places` are the places of its prefixes according to the sheet, None if it has none."""

    name: str
    where: str
    patterns: list[EntryPattern]
    none: bool
    places: dict[int, Place | None] = field(default_factory=dict)


@dataclass(frozen=True)
class FilledSheet:
    """A filled-in sheet: its annotator, if it names one, its memories, and the problems found while parsing."""

    annotator: str | None
    entries: list[Entry]
    problems: list[str]


def instructions(command: str) -> list[str]:
    """Instructions for annotators, after the paper's section 3.1; the rest depends on the format of the sheet."""
    return [
        f"Look for patterns that at least {LEAST} prefixes of a memory share. A memory may have up to {MOST} patterns, and a "
        "prefix several of them or none.",
        f"A pattern is {KINDS[0]} (the same words or word forms, such as a recurring n-gram) or {KINDS[1]} (the same topic or "
        "meaning).",
        "The last token of a prefix, at which the memory fires, is shown separately under token; next is the token that "
        "follows it in the text. ␣ is a space.",
        f"When you have finished, or are partly done, run: {command}",
    ]


def check_entries(study: Study, sheet: FilledSheet) -> tuple[dict[Memory, list[Pattern]], list[str]]:
    """The annotated memories with their patterns, and all problems of the sheet."""
    problems = list(sheet.problems)
    memories = {entry.name: memory for entry in sheet.entries if (memory := _memory(study, entry, problems))}
    places = trigger_places(study, list(memories.values()), count=TRIGGERS)
    patterns: dict[Memory, list[Pattern]] = {}
    for entry in sheet.entries:
        memory = memories.get(entry.name)
        if memory is None or not (entry.patterns or entry.none):
            continue
        if memory in patterns:
            problems.append(f"{memory}, {entry.where}: it is filled in twice. Remove one of them.")
        patterns[memory] = _patterns(entry, places[memory], problems)
    return patterns, problems


def _memory(study: Study, entry: Entry, problems: list[str]) -> Memory | None:
    try:
        return checked(study, Memory.parse(entry.name))
    except FfscopeError as error:
        problems.append(f"{entry.where}: {error}")
        return None


def _patterns(entry: Entry, places: dict[int, Place], problems: list[str]) -> list[Pattern]:
    """The valid patterns of a memory; the problems of the others are added to `problems`."""
    problems += [f"{entry.name}, {entry.where}: {problem}" for problem in _entry_problems(entry, places)]
    patterns = []
    for entry_pattern in entry.patterns:
        try:
            patterns.append(normalised(entry_pattern.pattern, places))
        except FfscopeError as error:
            problems.append(f"{entry.name}, {entry_pattern.where}: {error}")
    return patterns


def _entry_problems(entry: Entry, places: dict[int, Place]) -> Sequence[str]:
    """The problems of a memory as a whole."""
    if not places:
        return ["the memory has no triggers, so there is nothing to annotate. Remove it from the sheet."]
    if entry.none and entry.patterns:
        return [f"it is marked {NONE!r} but also has a pattern. Remove one of the two."]
    if len(entry.patterns) > MOST:
        return [f"it has {len(entry.patterns)} patterns; at most {MOST} are allowed. Remove the weakest."]
    if entry.places and (mismatched := sorted(set(places) ^ set(entry.places))):
        problem = "missing" if mismatched[0] in places else "not in the study"
        return [f"prefix {mismatched[0]} is {problem}. Restore the rows of the sheet."]
    moved = [rank for rank, place in entry.places.items() if place is not None and place != places[rank]]
    if moved:
        return [f"prefix {moved[0]} differs from the one that the study has now. Write a new sheet."]
    return []
