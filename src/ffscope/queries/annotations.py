"""annotations.sqlite: people's annotations and their drafts. Rows are only ever added."""

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
_PATIENCE = 30.0  # seconds that a writer waits for others
Place = tuple[int, int]  # sentence and position of a prefix
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
    """One person's annotation of one memory at one time. Without patterns, the person found none.

    `places` are the prefixes that were shown: rank → (sentence, position), which stays valid if a later search ranks differently.
    """

    annotator: str
    memory: Memory
    time: str  # UTC, ISO 8601
    patterns: list[Pattern]
    places: dict[int, Place]
    source: str = "page"  # or "sheet": where it was written

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self.places)


def read(study: Study, memory: Memory | None = None) -> list[Annotation]:
    """The newest annotation by every person of every memory, or of one."""
    newest = {(annotation.memory, annotation.annotator): annotation for annotation in history(study, memory)}
    return [newest[key] for key in sorted(newest)]


def history(study: Study, memory: Memory | None = None) -> list[Annotation]:
    """All annotations of a study's memories, or of one of them, oldest first."""
    with opened_if_exists(study) as database:
        return [] if database is None else load(database, memory)


def done_by(study: Study) -> dict[str, set[Memory]]:
    """The memories that each person annotated."""
    memories_by_annotator: dict[str, set[Memory]] = {}
    with opened_if_exists(study) as database:
        query = "SELECT DISTINCT annotator, layer, memory FROM annotation ORDER BY annotator"
        for annotator, *memory in [] if database is None else database.execute(query):
            memories_by_annotator.setdefault(annotator, set()).add(Memory(*memory))
    return memories_by_annotator


def annotators(study: Study) -> dict[str, int]:
    """The number of memories that each person annotated."""
    return {name: len(memories) for name, memories in done_by(study).items()}


def insert(database: sqlite3.Connection, annotation: Annotation) -> None:
    """Add one annotation with its prefixes and patterns."""
    row = (*annotation.memory, annotation.annotator, annotation.time, annotation.source)
    query = "INSERT INTO annotation (layer, memory, annotator, made, source) VALUES (?, ?, ?, ?, ?)"
    number = database.execute(query, row).lastrowid
    shown = [(number, rank, *place) for rank, place in annotation.places.items()]
    database.executemany("INSERT INTO shown VALUES (?, ?, ?, ?)", shown)
    for i, pattern in enumerate(annotation.patterns, 1):
        database.execute("INSERT INTO pattern VALUES (?, ?, ?, ?)", (number, i, pattern.kind, pattern.description))
        database.executemany("INSERT INTO covered VALUES (?, ?, ?)", [(number, i, rank) for rank in pattern.covers])


def load(database: sqlite3.Connection, memory: Memory | None = None) -> list[Annotation]:
    """Annotations of all memories or one, in the order in which they were added. Clocks may be wrong, ids only grow."""
    where, parameters = ("WHERE layer = ? AND memory = ?", memory) if memory else ("", ())
    selection = f"annotation IN (SELECT id FROM annotation {where})"
    places: dict[int, dict[int, Place]] = {}
    for number, rank, *place in database.execute(
        f"SELECT * FROM shown WHERE {selection} ORDER BY annotation, rank", parameters
    ):
        places.setdefault(number, {})[rank] = (place[0], place[1])
    covers: dict[tuple[int, int], list[int]] = {}
    query = f"SELECT * FROM covered WHERE {selection} ORDER BY annotation, pattern, rank"
    for number, i, rank in database.execute(query, parameters):
        covers.setdefault((number, i), []).append(rank)
    patterns: dict[int, list[Pattern]] = {}
    query = f"SELECT * FROM pattern WHERE {selection} ORDER BY annotation, pattern"
    for number, i, kind, description in database.execute(query, parameters):
        patterns.setdefault(number, []).append(Pattern(kind, description, tuple(covers.get((number, i), ()))))
    query = f"SELECT id, layer, memory, annotator, made, source FROM annotation {where} ORDER BY id"
    return [
        Annotation(annotator, Memory(*name), time, patterns.get(number, []), places.get(number, {}), source)
        for number, *name, annotator, time, source in database.execute(query, parameters)
    ]


@contextmanager
def opened_if_exists(study: Study) -> Iterator[sqlite3.Connection | None]:
    """A consistent view of the annotations, even while others write; None if there are none yet."""
    if not study.path(FILE).is_file():
        yield None
        return
    with _opened(study, "rw") as database:  # a read-only connection would leave files behind
        database.execute("BEGIN")
        yield database if _has_tables(database, study.path(FILE)) else None


@contextmanager
def adding(study: Study) -> Iterator[sqlite3.Connection]:
    """A transaction for adding rows: all are written, or none. Other writers wait for it."""
    with _opened(study, "rwc") as database:
        # Fails while another connection is writing; that one then sets it. Without it writing is just as safe, but readers wait.
        with suppress(sqlite3.OperationalError):
            database.execute("PRAGMA journal_mode = WAL")
        with database:
            database.execute("BEGIN IMMEDIATE")
            if not _has_tables(database, study.path(FILE)):
                _create_tables(database)
            yield database


@contextmanager
def _opened(study: Study, mode: str) -> Iterator[sqlite3.Connection]:
    file = study.path(FILE)
    # In a read-only folder no one can write, so sqlite needs no locks, which it could not create there anyway.
    read_only = not os.access(study.folder, os.W_OK) and not study.path(f"{FILE}-wal").exists()
    options = "mode=ro&immutable=1" if read_only and mode == "rw" else f"mode={mode}"
    address = f"file:{quote(str(file.resolve()))}?{options}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_PATIENCE, isolation_level=None)) as database:
            database.execute("PRAGMA foreign_keys = ON")
            yield database
    except sqlite3.OperationalError as error:
        raise StudyError(
            f"{file} cannot be used: {error}. Nothing was written. Fix the cause and try again."
        ) from error
    except sqlite3.DatabaseError as error:
        raise StudyError(
            f"{file} cannot be read as annotations: {error}. Restore a backup, or move it away to start afresh."
        ) from error


def _has_tables(database: sqlite3.Connection, file: Path) -> bool:
    """Whether the tables exist; raises for the database of another program or of a newer ffscope."""
    version = database.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StudyError(f"{file} has schema {version}; this ffscope reads schema {VERSION}. Use a newer ffscope.")
    if not version and database.execute("SELECT 1 FROM sqlite_master").fetchone():
        raise StudyError(
            f"{file} belongs to another program. Move it away: ffscope stores annotations under this name."
        )
    return bool(version)


def _create_tables(database: sqlite3.Connection) -> None:
    for table, columns in _TABLES.items():
        database.execute(f"CREATE TABLE {table} ({columns})")
    for table, verb in product(_TABLES, ("UPDATE", "DELETE")):
        database.execute(
            f"CREATE TRIGGER {table}_{verb} BEFORE {verb} ON {table} "
            "BEGIN SELECT RAISE(ABORT, 'annotations are only ever added'); END"
        )
    database.execute(f"PRAGMA user_version = {VERSION}")


def insert_draft(study: Study, annotator: str, memory: Memory, time: str, content: str) -> None:
    """Add a draft of an annotation."""
    with adding(study) as database:
        database.execute(_DRAFT)
        row = (*memory, annotator, time, content)
        database.execute("INSERT INTO draft (layer, memory, annotator, made, content) VALUES (?, ?, ?, ?, ?)", row)


def draft_annotators(study: Study) -> set[str]:
    """The people who have drafts."""
    return {name for (name,) in _drafts(study, "SELECT DISTINCT annotator FROM draft", ())}


def drafts_of(study: Study, annotator: str, memory: Memory, *, count: int) -> list[tuple[str, str]]:
    """The latest drafts of a person for a memory, oldest first: the time and the content of each."""
    query = "SELECT made, content FROM draft WHERE annotator = ? AND layer = ? AND memory = ? ORDER BY id DESC LIMIT ?"
    return [(time, content) for time, content in reversed(_drafts(study, query, (annotator, *memory, count)))]


def drafts_begun(study: Study, annotator: str) -> dict[Memory, str]:
    """The memories for which a person has drafts, with the time of the latest."""
    query = "SELECT layer, memory, max(made) FROM draft WHERE annotator = ? GROUP BY layer, memory"
    return {Memory(layer, memory): time for layer, memory, time in _drafts(study, query, (annotator,))}


def _drafts(study: Study, query: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    with opened_if_exists(study) as database:
        if database is None or not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'draft'").fetchone():
            return []
        return database.execute(query, parameters).fetchall()
