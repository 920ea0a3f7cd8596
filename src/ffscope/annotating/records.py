"""What people write: checked, signed and kept. A person's newest annotation of a memory counts."""

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
    """Add what a person says of a memory. What the same person said of it before stays, as history."""
    annotation = _annotations(study, checked_annotator(annotator), {memory: patterns}, source=source)[0]
    with adding(study) as database:
        insert(database, annotation)
    return annotation


def write_new(
    study: Study, annotator: str, found: Mapping[Memory, Sequence[Pattern]], *, source: str
) -> list[Annotation]:
    """What of this the person had not said yet, added: all of it or, where something is wrong, none.

    New is what differs from the last word from the same source: a sheet that is read twice must not undo what its annotator
    changed elsewhere in between.
    """
    annotator = checked_annotator(annotator)
    annotations = _annotations(study, annotator, found, source=source)
    with adding(study) as database:
        said = [old for old in load(database) if (old.annotator, old.source) == (annotator, source)]
        last = {old.memory: (old.patterns, old.places) for old in said}  # the newest stands last
        new = [one for one in annotations if last.get(one.memory) != (one.patterns, one.places)]
        for annotation in new:
            insert(database, annotation)
    return new


def checked_annotator(name: str) -> str:
    """A name that a person may sign with, one spelling of it."""
    name = unicodedata.normalize("NFC", name).strip()
    if not name:
        raise InputError("An annotator has no name. Give the one to sign with.")
    if len(name) > _LONGEST_NAME:
        raise InputError(f"An annotator's name has at most {_LONGEST_NAME} characters; this one has {len(name)}.")
    if name.casefold() == MACHINE or name.casefold().startswith("llm:"):
        raise InputError(f"{name!r} is not a person's name: {MACHINE!r} and 'llm:…' sign what programs find.")
    other = next((character for character in name if not _may_sign(character)), None)
    if other is not None:
        raise InputError(
            f"An annotator's name is made of letters and digits of any script, spaces and {' '.join(_MARKS)}; {visible(name)!r} "
            f"has {visible(other)!r}. Sign without it."
        )
    if not any(character.isalnum() for character in name):
        raise InputError(f"An annotator's name has at least one letter or digit; {name!r} has none.")
    return name


def _may_sign(character: str) -> bool:
    # M: marks that belong to letters, such as the vowels of Devanagari.
    return character in (" ", *_MARKS) or unicodedata.category(character)[0] in "LM" or character.isdecimal()


def sound(pattern: Pattern, ranks: Collection[int]) -> Pattern:
    """A person's pattern as it is kept: described in one line, its prefixes in order, held to the rules."""
    description = " ".join(pattern.description.split())
    if len(description) > _LONGEST_DESCRIPTION:
        raise InputError(
            f"A description has at most {_LONGEST_DESCRIPTION} characters; {description[:40]!r}… has {len(description)}."
        )
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in description):
        raise InputError(f"The description {description!r} holds a character that cannot be kept. Write it again.")
    return checked(Pattern(pattern.kind, description, tuple(sorted(set(pattern.covers)))), ranks)


def _annotations(
    study: Study, annotator: str, found: Mapping[Memory, Sequence[Pattern]], *, source: str
) -> list[Annotation]:
    """What is to be written, held against the triggers that the study shows."""
    for memory in found:
        checked_memory(study, memory)
    places = trigger_places(study, list(found), count=TRIGGERS)
    made = datetime.now(UTC).isoformat(timespec="milliseconds")
    annotations = []
    for memory, patterns in found.items():
        if not places[memory]:
            raise InputError(f"{memory} has no triggers, so there is nothing to annotate. Choose another memory.")
        if len(patterns) > MOST:
            raise InputError(f"{memory} has {len(patterns)} patterns; at most {MOST} are kept. Leave out the weakest.")
        kept = [sound(pattern, places[memory]) for pattern in patterns]
        annotations.append(Annotation(annotator, memory, made, kept, places[memory], source))
    return annotations
