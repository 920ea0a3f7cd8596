"""annotations.sqlite: the patterns that people found, and the steps on the way to them. Rows are only ever added."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ffscope.errors import StudyError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import KINDS, Pattern
from ffscope.study.folder import Study

FILE = "annotations.sqlite"
VERSION = 1
_PATIENCE = 30.0  # seconds that one writer waits for the others
Place = tuple[int, int]  # of a prefix: sentence, position
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


_DRAFT = """CREATE TABLE IF NOT EXISTS draft (id INTEGER PRIMARY KEY AUTOINCREMENT, layer INTEGER NOT NULL, memory INTEGER NOT NULL,
    annotator TEXT NOT NULL, made TEXT NOT NULL, content TEXT NOT NULL)"""


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


def read(study: Study, memory: Memory | None = None) -> list[Annotation]:
    """The newest annotation of every memory, or of one, by every person."""
    newest = {(annotation.memory, annotation.annotator): annotation for annotation in history(study, memory)}
    return [newest[key] for key in sorted(newest)]


def history(study: Study, memory: Memory | None = None) -> list[Annotation]:
    """Everything that people wrote about a study's memories, or one of them, oldest first."""
    with opened_if_there(study) as database:
        return [] if database is None else load(database, memory)


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


def insert(database: sqlite3.Connection, annotation: Annotation) -> None:
    """Add one annotation with all that belongs to it."""
    row = (*annotation.memory, annotation.annotator, annotation.made, annotation.source)
    query = "INSERT INTO annotation (layer, memory, annotator, made, source) VALUES (?, ?, ?, ?, ?)"
    number = database.execute(query, row).lastrowid
    shown = [(number, rank, *place) for rank, place in annotation.places.items()]
    database.executemany("INSERT INTO shown VALUES (?, ?, ?, ?)", shown)
    for i, pattern in enumerate(annotation.patterns, 1):
        database.execute("INSERT INTO pattern VALUES (?, ?, ?, ?)", (number, i, pattern.kind, pattern.description))
        database.executemany("INSERT INTO covered VALUES (?, ?, ?)", [(number, i, rank) for rank in pattern.covers])


def load(database: sqlite3.Connection, memory: Memory | None = None) -> list[Annotation]:
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


def insert_draft(study: Study, annotator: str, memory: Memory, made: str, content: str) -> None:
    """Keep a step on the way to an annotation."""
    with adding(study) as database:
        database.execute(_DRAFT)
        row = (*memory, annotator, made, content)
        database.execute("INSERT INTO draft (layer, memory, annotator, made, content) VALUES (?, ?, ?, ?, ?)", row)


def draft_annotators(study: Study) -> set[str]:
    """Who has taken steps."""
    return {name for (name,) in _drafts(study, "SELECT DISTINCT annotator FROM draft", ())}


def drafts_of(study: Study, annotator: str, memory: Memory, *, count: int) -> list[tuple[str, str]]:
    """The last steps of a person on a memory, oldest first: when each was taken, and its content."""
    query = "SELECT made, content FROM draft WHERE annotator = ? AND layer = ? AND memory = ? ORDER BY id DESC LIMIT ?"
    return [(made, content) for made, content in reversed(_drafts(study, query, (annotator, *memory, count)))]


def drafts_begun(study: Study, annotator: str) -> dict[Memory, str]:
    """The memories on which a person has taken steps, and when the last was."""
    query = "SELECT layer, memory, max(made) FROM draft WHERE annotator = ? GROUP BY layer, memory"
    return {Memory(layer, memory): made for layer, memory, made in _drafts(study, query, (annotator,))}


def _drafts(study: Study, query: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    with opened_if_there(study) as database:
        if database is None or not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'draft'").fetchone():
            return []
        return database.execute(query, parameters).fetchall()
