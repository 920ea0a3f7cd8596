"""Answers that were paid for, kept in the study folder, so that none is ever paid twice."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from ffscope.errors import LabellerError
from ffscope.labelling.cost import Cost, Price, Tokens
from ffscope.labelling.endpoint import Answer, Endpoint, Question, RefusedError

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


class Job(NamedTuple):
    """A batch of questions at the server: the file that holds them, and the batch, unless it may not have been started yet."""

    file: str
    batch: str | None
    model: str


class Answers:
    """Answers by what was asked: the model, the messages and the parameters, never the key or the address."""

    def __init__(self, file: Path) -> None:
        self.file, self._lock = file, Lock()
        with self._one_sentence():
            self._database = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
        try:
            with self._one_sentence():
                self._database.execute("PRAGMA journal_mode = WAL")
                self._database.execute("PRAGMA synchronous = FULL")  # an answer costs more than a write to the disk
                self._database.executescript(_TABLES)
        except LabellerError:
            self.close()
            raise

    def close(self) -> None:
        self._database.close()

    def get(self, name: str) -> Answer | None:
        """The answer to a question that was asked before, by its digest."""
        rows = self._run(
            "SELECT answer, finish, prompt_tokens, completion_tokens FROM answers WHERE question = ?", name
        )
        return Answer(*rows[0]) if rows else None

    def put(self, name: str, model: str, answer: Answer) -> None:
        """Keep an answer. It is on the disk when this returns."""
        into = "INSERT OR REPLACE INTO answers (question, model, answer, finish, prompt_tokens, completion_tokens)"
        self._run(f"{into} VALUES (?, ?, ?, ?, ?, ?)", name, model, *astuple(answer))

    def job(self, endpoint: str) -> Job | None:
        """A batch at this endpoint whose answers have not been fetched."""
        rows = self._run("SELECT file, batch, model FROM batches WHERE endpoint = ? ORDER BY sent LIMIT 1", endpoint)
        return Job(*rows[0]) if rows else None

    def put_job(self, job: Job, endpoint: str) -> None:
        """Keep a batch, so that another run can fetch its answers."""
        into = "INSERT OR REPLACE INTO batches (file, batch, endpoint, model)"
        self._run(f"{into} VALUES (?, ?, ?, ?)", job.file, job.batch, endpoint, job.model)

    def drop_job(self, job: Job) -> None:
        """Forget a batch whose answers are kept, or will never come."""
        self._run("DELETE FROM batches WHERE file = ?", job.file)

    def _run(self, statement: str, *parameters: Any) -> list[tuple]:
        with self._lock, self._one_sentence():
            return self._database.execute(statement, parameters).fetchall()

    @contextmanager
    def _one_sentence(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise LabellerError(
                f"{self.file} does not keep the labeller's answers: {error}. Make room, or move the file away; what it held "
                "is then asked for, and paid, again."
            ) from error


def digest(question: Question) -> str:
    """A question's name: the same for the same model, messages and parameters."""
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


class Correspondence:
    """An endpoint whose answers are kept, with what they cost. Any number of threads may ask at once."""

    def __init__(self, endpoint: Endpoint, answers: Answers, *, seed: int, price: Price | None = None) -> None:
        self.endpoint, self.answers, self.seed = endpoint, answers, seed
        self.paid: set[str] = set()  # digests of the questions that were answered in this run
        self.stopped = endpoint.stopped
        self.stopped.clear()
        self._price, self._tokens = price, dict[str, Tokens]()
        self._counting, self._asking = Lock(), dict[str, Lock]()

    @property
    def cost(self) -> Cost:
        """What the answers cost so far: each question once, however often it came up."""
        with self._counting:
            paid, kept = Tokens(), Tokens()
            for name, tokens in self._tokens.items():
                paid, kept = (paid + tokens, kept) if name in self.paid else (paid, kept + tokens)
        return Cost(paid, kept, self._price)

    def ask(self, messages: list[dict[str, str]]) -> Answer:
        """The answer that is kept, or else the endpoint's."""
        question = self.endpoint.question(messages, seed=self.seed)
        name = digest(question)
        # Two threads that ask the same have one answer between them, whichever comes first.
        with self._asking.setdefault(name, Lock()):
            answer = self.answers.get(name) or self._fetch(name, question)
        with self._counting:
            self._tokens[name] = Tokens(1, answer.prompt_tokens, answer.completion_tokens)
        return answer

    def keep(self, name: str, model: str, answer: Answer) -> None:
        """Keep an answer that was paid for in this run."""
        self.answers.put(name, model, answer)
        with self._counting:
            self.paid.add(name)

    def _fetch(self, name: str, question: Question) -> Answer:
        """An answer that is not kept yet."""
        try:
            answer = self.endpoint.ask(question)
            self.keep(name, question["model"], answer)
        except RefusedError:
            raise
        except LabellerError:
            self.stopped.set()  # what one thread cannot have, as with a wrong key, no other is to ask for
            raise
        return answer
