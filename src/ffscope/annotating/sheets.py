"""Sheets for people to fill in: which memories, written as CSV and JSON, and read back whole or not at all."""

import hashlib
import re
import shlex
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from ffscope.annotating import form, spreadsheet
from ffscope.annotating.entries import judge
from ffscope.annotating.records import checked_annotator, write_new
from ffscope.annotating.spreadsheet import harmless
from ffscope.errors import InputError, StudyError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import TRIGGERS
from ffscope.patterns.sampling import draw_memories
from ffscope.queries.prefixes import first_triggers, trigger_places
from ffscope.queries.tables import checked
from ffscope.study.folder import Study

FOLDER = "sheets"
SAMPLE = 10  # memories per layer, as in the paper
_SHOWN = 10  # problems that are spelt out
_FORMS = {"csv": spreadsheet, "json": form}


@dataclass(frozen=True)
class Sheet:
    """A sheet to be filled in, in two forms: either of them is to be read back, by `ffscope` and what `then` says."""

    csv: Path
    json: Path
    memories: int
    then: str


@dataclass(frozen=True)
class ReadBack:
    """What a filled-in sheet held, and how many of its memories said something new."""

    memories: int
    patterns: int
    new: int


def draw(study: Study, sample: int = SAMPLE, *, seed: int | None = None) -> list[Memory]:
    """So many memories of every layer, among those with a trigger: the same for every annotator.

    They come one of each layer, then the next of each, so that half a sheet is half of every layer.
    """
    study.need("triggers")
    seed = study.settings["seed"] if seed is None else seed
    drawn = draw_memories(study, sample, seed=seed)
    return [memory for turn in zip_longest(*drawn) for memory in turn if memory is not None]


def named(study: Study, names: str) -> list[Memory]:
    """`"L3.17,L4.2"` as memories that can be annotated."""
    memories = list(dict.fromkeys(checked(study, Memory.parse(name.strip())) for name in names.split(",")))
    for memory, places in trigger_places(study, memories, count=1).items():
        if not places:
            raise InputError(f"{memory} has no triggers, so there is nothing to annotate. Name others.")
    return memories


def choose(study: Study, *, sample: int | None, names: str | None, seed: int | None) -> list[Memory]:
    """The memories that were asked for: by name, or drawn."""
    if names is None:
        return draw(study, SAMPLE if sample is None else sample, seed=seed)
    if sample is not None or seed is not None:
        raise InputError(
            "Memories are named, or drawn by a number and a seed. Give --memories, or --sample and --seed."
        )
    return named(study, names)


def write_sheet(study: Study, annotator: str, memories: Sequence[Memory]) -> Sheet:
    """A sheet of memories for one annotator, with their first triggers. What the machine found is not in it."""
    annotator = checked_annotator(annotator)
    if not memories:
        raise InputError(f"{study.folder} has no memory with a trigger, so there is nothing to annotate.")
    stem = f"{FOLDER}/{_safe(annotator)}"
    files = {ending: study.path(f"{stem}.{ending}") for ending in _FORMS}
    for file in files.values():
        if file.exists():
            raise StudyError(
                f"{file} is there already, and is never overwritten. Fill it in and read it back with --read, or move it away "
                "for a new one."
            )
    listed = first_triggers(study, list(memories), count=TRIGGERS)
    study.make_folder(FOLDER)
    then = {ending: _then(study, annotator, file) for ending, file in files.items()}
    for ending, kind in _FORMS.items():
        with study.replacing(f"{stem}.{ending}") as path:
            path.write_bytes(kind.written(annotator, listed, f"ffscope {then[ending]}"))
    return Sheet(**files, memories=len(memories), then=then["csv"])


def read_sheet(study: Study, annotator: str, file: Path | str) -> ReadBack:
    """Write down what a filled-in sheet says: all of it or, where something is wrong with it, nothing."""
    annotator = checked_annotator(annotator)
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}. Name a sheet that was filled in.") from error
    filled = _FORMS.get(Path(file).suffix.lower().removeprefix("."), spreadsheet).parsed(content)
    if filled.annotator and unicodedata.normalize("NFC", filled.annotator) not in (annotator, harmless(annotator)):
        raise InputError(
            f"{file} was written for {filled.annotator!r}, not for {annotator!r}, and was not read. Name who filled it in; "
            "where its name lost letters, save the sheet as CSV UTF-8."
        )
    found, problems = judge(study, filled)
    if problems:
        raise InputError(_told(Path(file), problems))
    new = write_new(study, annotator, found, source="sheet")
    return ReadBack(memories=len(found), patterns=sum(map(len, found.values())), new=len(new))


def _safe(annotator: str) -> str:
    """A file's name, another for every annotator, also where the disk does not tell A from a."""
    if re.fullmatch("[a-z0-9_-]+", annotator):
        return annotator
    readable = re.sub("[^a-z0-9_-]+", "_", annotator.lower())
    return f"{readable}.{hashlib.sha256(annotator.encode()).hexdigest()[:8]}"


def _then(study: Study, annotator: str, file: Path) -> str:
    return shlex.join(["annotate", str(study.folder), "--annotator", annotator, "--read", str(file)])


def _told(file: Path, problems: list[str]) -> str:
    head = f"{file} was not read, and nothing was written. Mend this and read it again:"
    more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    return "\n".join([head, *(f"• {problem}" for problem in problems[:_SHOWN]), *more])
