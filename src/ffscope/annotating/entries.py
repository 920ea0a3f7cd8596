"""What a filled-in sheet says, whatever its form, and whether it may be kept: everything that is wrong is said at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ffscope.annotating.records import sound
from ffscope.errors import FfscopeError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import KINDS, LEAST, MOST, TRIGGERS, Pattern
from ffscope.queries.prefixes import Place, trigger_places
from ffscope.queries.tables import checked
from ffscope.study.folder import Study

NONE = "none"  # what a person writes who looked and found no pattern


@dataclass(frozen=True)
class EntryPattern:
    """One pattern as a person wrote it, and where in the sheet."""

    where: str
    pattern: Pattern


@dataclass(frozen=True)
class Entry:
    """One memory of a sheet. `places` are its prefixes as the sheet has them, None where it does not say which one it is."""

    name: str
    where: str
    said: list[EntryPattern]
    none: bool
    places: dict[int, Place | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Filled:
    """A sheet as it was filled in: whose it is, if it says so, its memories, and what could not be understood."""

    annotator: str | None
    entries: list[Entry]
    problems: list[str]


def instructions(command: str) -> list[str]:
    """What an annotator is asked to do, after the paper's section 3.1; the rest depends on a sheet's form."""
    return [
        f"Look for what at least {LEAST} prefixes of a memory share. A memory may have up to {MOST} patterns, and a prefix "
        "several of them or none.",
        f"A pattern is {KINDS[0]} (the same words or word forms, such as a recurring n-gram) or {KINDS[1]} (the same topic or "
        "meaning).",
        "The last token of a prefix, at which the memory fires, stands by itself under token; next is the token that follows "
        "it in the text. ␣ is a space.",
        f"When you are done, or half done: {command}",
    ]


def judge(study: Study, filled: Filled) -> tuple[dict[Memory, list[Pattern]], list[str]]:
    """The memories that were annotated, with their patterns, and everything that is wrong with the sheet."""
    problems = list(filled.problems)
    memories = {entry.name: memory for entry in filled.entries if (memory := _memory(study, entry, problems))}
    shown = trigger_places(study, list(memories.values()), count=TRIGGERS)
    found: dict[Memory, list[Pattern]] = {}
    for entry in filled.entries:
        memory = memories.get(entry.name)
        if memory is None or not (entry.said or entry.none):
            continue
        if memory in found:
            problems.append(f"{memory}, {entry.where}: it is filled in twice. Leave one of them out.")
        found[memory] = _patterns(entry, shown[memory], problems)
    return found, problems


def _memory(study: Study, entry: Entry, problems: list[str]) -> Memory | None:
    try:
        return checked(study, Memory.parse(entry.name))
    except FfscopeError as error:
        problems.append(f"{entry.where}: {error}")
        return None


def _patterns(entry: Entry, shown: dict[int, Place], problems: list[str]) -> list[Pattern]:
    """A memory's patterns, as far as they are sound."""
    problems += [f"{entry.name}, {entry.where}: {problem}" for problem in _wrong(entry, shown)]
    patterns = []
    for said in entry.said:
        try:
            patterns.append(sound(said.pattern, shown))
        except FfscopeError as error:
            problems.append(f"{entry.name}, {said.where}: {error}")
    return patterns


def _wrong(entry: Entry, shown: dict[int, Place]) -> Sequence[str]:
    """What is wrong with a memory as a whole."""
    if not shown:
        return ["the memory has no triggers, so there is nothing to annotate."]
    if entry.none and entry.said:
        return [f"it says {NONE!r}, and has a pattern all the same. Take one of them away."]
    if len(entry.said) > MOST:
        return [f"it has {len(entry.said)} patterns; at most {MOST} are kept. Leave out the weakest."]
    if entry.places and (absent := sorted(set(shown) ^ set(entry.places))):
        return [f"prefix {absent[0]} is {'missing' if absent[0] in shown else 'not one of them'}. Put its rows back."]
    moved = [rank for rank, place in entry.places.items() if place is not None and place != shown[rank]]
    if moved:
        return [f"prefix {moved[0]} is not the one that the study has there now. Write a new sheet."]
    return []
