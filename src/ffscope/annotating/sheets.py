"""Annotation sheets: choosing the memories, writing CSV and JSON, and reading a sheet back, as a whole or not at all."""

import hashlib
import re
import shlex
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from ffscope.annotating import csv_sheet, json_sheet
from ffscope.annotating.csv_sheet import harmless
from ffscope.annotating.entries import check_entries
from ffscope.annotating.records import checked_annotator, write_new
from ffscope.errors import InputError, StudyError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import TRIGGERS
from ffscope.patterns.sampling import draw_memories
from ffscope.queries.prefixes import first_triggers, trigger_places
from ffscope.queries.tables import checked
from ffscope.study.folder import Study

FOLDER = "sheets"
SAMPLE = 10  # memories per layer, as in the paper
_SHOWN = 10  # problems that an error lists
_FORMS = {"csv": csv_sheet, "json": json_sheet}


@dataclass(frozen=True)
class Sheet:
    """A sheet to fill in, in two formats, either of which can be read back; `then` is the `ffscope` command for that."""

    csv: Path
    json: Path
    memories: int
    then: str


@dataclass(frozen=True)
class SheetContent:
    """The numbers of memories and patterns in a filled-in sheet, and how many of the memories are new or changed."""

    memories: int
    patterns: int
    new: int


def draw(study: Study, sample: int = SAMPLE, *, seed: int | None = None) -> list[Memory]:
    """A random sample of memories with a trigger, `sample` per layer, the same for every annotator.

    The layers alternate, so that the first half of a sheet has half of the memories of every layer.
    """
    study.need("triggers")
    seed = study.settings["seed"] if seed is None else seed
    memories_by_layer = draw_memories(study, sample, seed=seed)
    return [
        memory
        for round_of_layers in zip_longest(*memories_by_layer)
        for memory in round_of_layers
        if memory is not None
    ]


def parse_memories(study: Study, names: str) -> list[Memory]:
    """The memories of a list such as `"L3.17,L4.2"`, if they can be annotated."""
    memories = list(dict.fromkeys(checked(study, Memory.parse(name.strip())) for name in names.split(",")))
    for memory, places in trigger_places(study, memories, count=1).items():
        if not places:
            raise InputError(f"{memory} has no triggers, so there is nothing to annotate. Name other memories.")
    return memories


def choose_memories(study: Study, *, sample: int | None, names: str | None, seed: int | None) -> list[Memory]:
    """The requested memories: by name, or a random sample."""
    if names is None:
        return draw(study, SAMPLE if sample is None else sample, seed=seed)
    if sample is not None or seed is not None:
        raise InputError(
            "Memories are either named or drawn at random. Give --memories, or --sample and --seed, not both."
        )
    return parse_memories(study, names)


def write_sheet(study: Study, annotator: str, memories: Sequence[Memory]) -> Sheet:
    """Write a sheet of memories with their top triggers for one annotator. It does not show what programs found."""
    annotator = checked_annotator(annotator)
    if not memories:
        raise InputError(
            f"{study.folder} has no memory with a trigger, so there is nothing to annotate. Search a larger corpus."
        )
    stem = f"{FOLDER}/{_safe(annotator)}"
    files = {ending: study.path(f"{stem}.{ending}") for ending in _FORMS}
    for file in files.values():
        if file.exists():
            raise StudyError(
                f"{file} exists already, and sheets are never overwritten. Fill it in and read it back with --read, or move it "
                "away to get a new one."
            )
    triggers = first_triggers(study, list(memories), count=TRIGGERS)
    study.make_folder(FOLDER)
    commands = {ending: _read_command(study, annotator, file) for ending, file in files.items()}
    for ending, module in _FORMS.items():
        with study.replacing(f"{stem}.{ending}") as path:
            path.write_bytes(module.format_sheet(annotator, triggers, f"ffscope {commands[ending]}"))
    return Sheet(**files, memories=len(memories), then=commands["csv"])


def read_sheet(study: Study, annotator: str, file: Path | str) -> SheetContent:
    """Store the annotations of a filled-in sheet. If there is any problem, nothing is stored."""
    annotator = checked_annotator(annotator)
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}. Give the path of a filled-in sheet.") from error
    sheet = _FORMS.get(Path(file).suffix.lower().removeprefix("."), csv_sheet).parse_sheet(content)
    if sheet.annotator and unicodedata.normalize("NFC", sheet.annotator) not in (annotator, harmless(annotator)):
        raise InputError(
            f"{file} was written for {sheet.annotator!r}, not for {annotator!r}, and was not read. Name the person who filled it "
            "in; if the name in it has lost letters, save the sheet as CSV UTF-8."
        )
    patterns, problems = check_entries(study, sheet)
    if problems:
        raise InputError(_problem_message(Path(file), problems))
    new = write_new(study, annotator, patterns, source="sheet")
    return SheetContent(memories=len(patterns), patterns=sum(map(len, patterns.values())), new=len(new))


def _safe(annotator: str) -> str:
    """A file name that is unique to an annotator, even on a disk that ignores case."""
    if re.fullmatch("[a-z0-9_-]+", annotator):
        return annotator
    readable = re.sub("[^a-z0-9_-]+", "_", annotator.lower())
    return f"{readable}.{hashlib.sha256(annotator.encode()).hexdigest()[:8]}"


def _read_command(study: Study, annotator: str, file: Path) -> str:
    return shlex.join(["annotate", str(study.folder), "--annotator", annotator, "--read", str(file)])


def _problem_message(file: Path, problems: list[str]) -> str:
    heading = f"{file} was not read, and nothing was written. Fix these problems and read it again:"
    more = [f"… and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    return "\n".join([heading, *(f"• {problem}" for problem in problems[:_SHOWN]), *more])
