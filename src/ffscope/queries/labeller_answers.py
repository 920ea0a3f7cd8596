"""labeller.sqlite: answers that were paid for, and batches of questions in progress."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from ffscope.errors import LabellerError

FILE = "labeller.sqlite"
_TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    question TEXT PRIMARY KEY, model TEXT NOT NULL, answer TEXT NOT NULL, finish TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, answered TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS batches (
    file TEXT PRIMARY KEY, batch TEXT, endpoint TEXT NOT NULL, model TEXT NOT NULL,
    sent TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID
"""


@dataclass(frozen=True)
class Answer:
    """A model's answer, why it ended, and the numbers of tokens."""

    text: str
    finish: str
    prompt_tokens: int
    completion_tokens: int


class Job(NamedTuple):
    """A batch of questions at the server: the file that holds them, and the batch, which is None if it may not have started yet."""

    file: str
    batch: str | None
    model: str


class Answers:
    """Answers by question: the model, the messages and the parameters, never the key or the address."""

    def __init__(self, file: Path) -> None:
        self.file, self._lock = file, Lock()
        with self._as_labeller_error():
            self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        try:
            with self._as_labeller_error():
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")  # an answer costs more than a disk write
                self._database.executescript(_TABLES)
        except LabellerError:
            self.close()
            raise

    def close(self) -> None:
        self._database.close()

    def get(self, name: str) -> Answer | None:
        """The stored answer to a question, given by its digest."""
        rows = self._run(
            "SELECT answer, finish, prompt_tokens, completion_tokens FROM answers WHERE question = ?", name
        )
        return Answer(*rows[0]) if rows else None

    def put(self, name: str, model: str, answer: Answer) -> None:
        """Store an answer. It is on disk when this returns."""
        into = "INSERT OR REPLACE INTO answers (question, model, answer, finish, prompt_tokens, completion_tokens)"
        self._run(f"{into} VALUES (?, ?, ?, ?, ?, ?)", name, model, *astuple(answer))

    def job(self, endpoint: str) -> Job | None:
        """A batch at this endpoint whose answers have not been fetched."""
        rows = self._run("SELECT file, batch, model FROM batches WHERE endpoint = ? ORDER BY sent LIMIT 1", endpoint)
        return Job(*rows[0]) if rows else None

    def put_job(self, job: Job, endpoint: str) -> None:
        """Store a batch, so that another run can fetch its answers."""
        into = "INSERT OR REPLACE INTO batches (file, batch, endpoint, model)"
        self._run(f"{into} VALUES (?, ?, ?, ?)", job.file, job.batch, endpoint, job.model)

    def drop_job(self, job: Job) -> None:
        """Remove a batch whose answers are stored, or will never come."""
        self._run("DELETE FROM batches WHERE file = ?", job.file)

    def _run(self, statement: str, *parameters: Any) -> list[tuple]:
        with self._lock, self._as_labeller_error():
            return self._database.execute(statement, parameters).fetchall()

    @contextmanager
    def _as_labeller_error(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise LabellerError(
                f"{self.file} cannot store the labeller's answers: {error}. Free disk space, or move the file away; the answers "
                "in it are then requested, and paid for, again."
            ) from error
