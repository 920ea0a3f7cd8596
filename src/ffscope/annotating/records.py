"""annotations.sqlite: the patterns that people found. Rows are only ever added; a person's newest word on a memory counts."""

import os
import sqlite3
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from urllib.parse import quote

from ffscope.errors import InputError, StudyError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import KINDS, MACHINE, MOST, TRIGGERS, Pattern, checked
from ffscope.queries import Place, trigger_places
from ffscope.queries import checked as checked_memory
from ffscope.study.folder import Study
from ffscope.tokens import visible

FILE = "annotations.sqlite"
VERSION = 1
_PATIENCE = 30.0  # seconds that one writer waits for the others
_LONGEST_NAME, _LONGEST_DESCRIPTION = 60, 500
_MARKS = [".", "_", "-", "@", "'", "’"]
_TABLES = {
    "annotation": """id INTEGER PRIMARY KEY AUTOINCREMENT, layer INTEGER NOT NULL, memory INTEGER NOT NULL,
        annotator TEXT NOT NULL, made TEXT NOT NULL, source TEXT NOT NULL""",
    "shown": """annotation INTEGER NOT NULL REFERENCES annotation, rank INTEGER NOT NULL, sentence INTEGER NOT NULL,
        position INTEGER NOT NULL, PRIMARY KEY (annotation, rank)""",
    "pattern": f"""annotation INTEGER NOT NULL REFERENCES annotation, pattern INTEGER NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN {KINDS}), description TEXT NOT NULL, PRIMARY KEY (annotation, pattern)""",
    "covered": """annotation INTEGER NOT NULL, pattern INTEGER NOT NULL, rank INTEGER NOT NULL,
        PRIMARY KEY (annotation, pattern, rank), FOREIGN KEY (annotation, pattern) REFERENCES pattern,
        FOREIGN KEY (annotation, rank) REFERENCES shown""",
}


@dataclass(frozen=True)
class Annotation:
    """One memory, looked at by one person at one time. No pattern: the person looked and found none.

    `places` are the prefixes that were shown: rank → (sentence, position), which holds whatever ranks a later search gives.
    """

    annotator: str
    memory: Memory
    made: str  # UTC, ISO 8601
    patterns: list[Pattern]
    places: dict[int, Place]
    source: str = "page"  # or "sheet": where it was written

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self.places)


def write(
    study: Study, annotator: str, memory: Memory, patterns: Sequence[Pattern], *, source: str = "page"
) -> Annotation:
    """Add what a person says of a memory. What the same person said of it before stays, as history."""
    annotation = _annotations(study, checked_annotator(annotator), {memory: patterns}, source=source)[0]
    with adding(study) as database:
        _insert(database, annotation)
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
        said = [old for old in _load(database) if (old.annotator, old.source) == (annotator, source)]
        last = {old.memory: (old.patterns, old.places) for old in said}  # the newest stands last
        new = [one for one in annotations if last.get(one.memory) != (one.patterns, one.places)]
        for annotation in new:
            _insert(database, annotation)
    return new


def read(study: Study, memory: Memory | None = None) -> list[Annotation]:
    """The newest annotation of every memory, or of one, by every person."""
    newest = {(annotation.memory, annotation.annotator): annotation for annotation in history(study, memory)}
    return [newest[key] for key in sorted(newest)]


def history(study: Study, memory: Memory | None = None) -> list[Annotation]:
    """Everything that people wrote about a study's memories, or one of them, oldest first."""
    with opened_if_there(study) as database:
        return [] if database is None else _load(database, memory)


def done_by(study: Study) -> dict[str, set[Memory]]:
    """Who annotated, and which memories."""
    found: dict[str, set[Memory]] = {}
    with opened_if_there(study) as database:
        query = "SELECT DISTINCT annotator, layer, memory FROM annotation ORDER BY annotator"
        for annotator, *memory in [] if database is None else database.execute(query):
            found.setdefault(annotator, set()).add(Memory(*memory))
    return found


def annotators(study: Study) -> dict[str, int]:
    """Who annotated, and how many memories."""
    return {name: len(memories) for name, memories in done_by(study).items()}


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


def _insert(database: sqlite3.Connection, annotation: Annotation) -> None:
    row = (*annotation.memory, annotation.annotator, annotation.made, annotation.source)
    query = "INSERT INTO annotation (layer, memory, annotator, made, source) VALUES (?, ?, ?, ?, ?)"
    number = database.execute(query, row).lastrowid
    shown = [(number, rank, *place) for rank, place in annotation.places.items()]
    database.executemany("INSERT INTO shown VALUES (?, ?, ?, ?)", shown)
    for i, pattern in enumerate(annotation.patterns, 1):
        database.execute("INSERT INTO pattern VALUES (?, ?, ?, ?)", (number, i, pattern.kind, pattern.description))
        database.executemany("INSERT INTO covered VALUES (?, ?, ?)", [(number, i, rank) for rank in pattern.covers])


def _load(database: sqlite3.Connection, memory: Memory | None = None) -> list[Annotation]:
    """Annotations, of all memories or one, in the order in which they were written: clocks may be wrong, numbers only grow."""
    where, given = ("WHERE layer = ? AND memory = ?", memory) if memory else ("", ())
    some = f"annotation IN (SELECT id FROM annotation {where})"
    shown: dict[int, dict[int, Place]] = {}
    for number, rank, *place in database.execute(f"SELECT * FROM shown WHERE {some} ORDER BY annotation, rank", given):
        shown.setdefault(number, {})[rank] = (place[0], place[1])
    covers: dict[tuple[int, int], list[int]] = {}
    query = f"SELECT * FROM covered WHERE {some} ORDER BY annotation, pattern, rank"
    for number, i, rank in database.execute(query, given):
        covers.setdefault((number, i), []).append(rank)
    patterns: dict[int, list[Pattern]] = {}
    query = f"SELECT * FROM pattern WHERE {some} ORDER BY annotation, pattern"
    for number, i, kind, description in database.execute(query, given):
        patterns.setdefault(number, []).append(Pattern(kind, description, tuple(covers.get((number, i), ()))))
    query = f"SELECT id, layer, memory, annotator, made, source FROM annotation {where} ORDER BY id"
    return [
        Annotation(annotator, Memory(*name), made, patterns.get(number, []), shown.get(number, {}), source)
        for number, *name, annotator, made, source in database.execute(query, given)
    ]


@contextmanager
def opened_if_there(study: Study) -> Iterator[sqlite3.Connection | None]:
    """One moment of what people wrote, however many write meanwhile; None where nobody has."""
    if not study.path(FILE).is_file():
        yield None
        return
    with _opened(study, "rw") as database:  # a reader that may not write leaves files behind
        database.execute("BEGIN")
        yield database if _made(database, study.path(FILE)) else None


@contextmanager
def adding(study: Study) -> Iterator[sqlite3.Connection]:
    """A transaction that others wait for: what is written in it is written whole or not at all."""
    with _opened(study, "rwc") as database:
        # Refused while another is at work, who then sets it; without it writing is as safe, but readers must wait.
        with suppress(sqlite3.OperationalError):
            database.execute("PRAGMA journal_mode = WAL")
        with database:
            database.execute("BEGIN IMMEDIATE")
            if not _made(database, study.path(FILE)):
                _make(database)
            yield database


@contextmanager
def _opened(study: Study, mode: str) -> Iterator[sqlite3.Connection]:
    file = study.path(FILE)
    # Where nobody can write, nobody does: sqlite need not ask, and could not.
    still = not os.access(study.folder, os.W_OK) and not study.path(f"{FILE}-wal").exists()
    how = "mode=ro&immutable=1" if still and mode == "rw" else f"mode={mode}"
    address = f"file:{quote(str(file.resolve()))}?{how}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)) as database:
            database.execute("PRAGMA foreign_keys = ON")
            yield database
    except sqlite3.OperationalError as error:
        raise StudyError(f"{file} cannot be used: {error}. Nothing was written: mend it and try again.") from error
    except sqlite3.DatabaseError as error:
        raise StudyError(
            f"{file} cannot be read as annotations: {error}. Put back a copy of it, or move it away to begin anew."
        ) from error


def _made(database: sqlite3.Connection, file: Path) -> bool:
    """Whether the tables are there; those of another program or of a newer ffscope are refused."""
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StudyError(f"{file} has schema {version}; this ffscope reads schema {VERSION}. Use a newer ffscope.")
    if not version and database.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise StudyError(f"{file} is another program's database. Move it away: annotations are kept under its name.")
    return bool(version)


def _make(database: sqlite3.Connection) -> None:
    for table, columns in _TABLES.items():
        database.execute(f"CREATE TABLE {table} ({columns})")
    for table, verb in product(_TABLES, ("UPDATE", "DELETE")):
        database.execute(
            f"CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'annotations are only ever added'); END"
        )
    database.execute(f"PRAGMA user_version = {VERSION}")
