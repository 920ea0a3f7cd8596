"""Checks and stores people's annotations. A person's newest annotation of a memory counts."""

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime

from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import MACHINE, MOST, TRIGGERS, Pattern, checked
from ffscope.queries.annotations import Annotation, adding, insert, load
from ffscope.queries.prefixes import trigger_places
from ffscope.queries.tables import checked as checked_memory
from ffscope.study.folder import Study
from ffscope.tokens import visible

_LONGEST_NAME, _LONGEST_DESCRIPTION = 60, 500
_MARKS = [".", "_", "-", "@", "'", "’"]


def write(
    study: Study, annotator: str, memory: Memory, patterns: Sequence[Pattern], *, source: str = "page"
) -> Annotation:
    """Add a person's annotation of a memory. Earlier ones by the same person stay, as history."""
    annotation = _annotations(study, checked_annotator(annotator), {memory: patterns}, source=source)[0]
    with adding(study) as database:
        insert(database, annotation)
    return annotation


def write_new(
    study: Study, annotator: str, patterns: Mapping[Memory, Sequence[Pattern]], *, source: str
) -> list[Annotation]:
    """Add the annotations that are new, and return them. If any is invalid, none is added.

    An annotation is new if it differs from the person's last one from the same source: a sheet that is read twice must not undo
    what its annotator changed elsewhere in between.
    """
    annotator = checked_annotator(annotator)
    annotations = _annotations(study, annotator, patterns, source=source)
    with adding(study) as database:
        earlier = [old for old in load(database) if (old.annotator, old.source) == (annotator, source)]
        last = {old.memory: (old.patterns, old.places) for old in earlier}  # the newest comes last
        new = [
            annotation
            for annotation in annotations
            if last.get(annotation.memory) != (annotation.patterns, annotation.places)
        ]
        for annotation in new:
            insert(database, annotation)
    return new


def checked_annotator(name: str) -> str:
    """The name of an annotator, normalised, if it is valid."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name:
        raise InputError("The annotator's name is empty. Enter a name.")
    if len(name) > _LONGEST_NAME:
        raise InputError(
            f"An annotator's name has at most {_LONGEST_NAME} characters; this one has {len(name)}. Shorten it."
        )
    if name.casefold() == MACHINE or name.casefold().startswith("llm:"):
        raise InputError(
            f"{name!r} cannot be a person's name: {MACHINE!r} and 'llm:…' are reserved for programs. Choose another name."
        )
    invalid = next((character for character in name if not _is_allowed(character)), None)
    if invalid is not None:
        raise InputError(
            f"An annotator's name consists of letters and digits of any script, spaces and {' '.join(_MARKS)}; {visible(name)!r} "
            f"contains {visible(invalid)!r}. Remove it."
        )
    if not any(character.isalnum() for character in name):
        raise InputError(f"An annotator's name has at least one letter or digit; {name!r} has none. Add one.")
    return name


def _is_allowed(character: str) -> bool:
    # M: marks that belong to letters, such as the vowels of Devanagari.
    return character in (" ", *_MARKS) or unicodedata.category(character)[0] in "LM" or character.isdecimal()


def normalised(pattern: Pattern, ranks: Collection[int]) -> Pattern:
    """A person's pattern as it is stored, if it is valid: its description on one line, its prefixes sorted."""
    description = " ".join(pattern.description.split())
    if len(description) > _LONGEST_DESCRIPTION:
        raise InputError(
            f"A description has at most {_LONGEST_DESCRIPTION} characters; {description[:40]!r}… has {len(description)}. "
            "Shorten it."
        )
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in description):
        raise InputError(f"The description {description!r} contains a character that cannot be stored. Type it again.")
    return checked(Pattern(pattern.kind, description, tuple(sorted(set(pattern.covers)))), ranks)


def _annotations(
    study: Study, annotator: str, patterns_by_memory: Mapping[Memory, Sequence[Pattern]], *, source: str
) -> list[Annotation]:
    """The annotations to store, checked against the study's triggers."""
    for memory in patterns_by_memory:
        checked_memory(study, memory)
    places = trigger_places(study, list(patterns_by_memory), count=TRIGGERS)
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    annotations = []
    for memory, patterns in patterns_by_memory.items():
        if not places[memory]:
            raise InputError(f"{memory} has no triggers, so there is nothing to annotate. Choose another memory.")
        if len(patterns) > MOST:
            raise InputError(f"{memory} has {len(patterns)} patterns; at most {MOST} are allowed. Remove the weakest.")
        valid = [normalised(pattern, places[memory]) for pattern in patterns]
        annotations.append(Annotation(annotator, memory, time, valid, places[memory], source))
    return annotations
