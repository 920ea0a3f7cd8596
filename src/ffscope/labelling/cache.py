"""Answers that were paid for, kept in the study folder, so that none is ever paid twice."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from threading import Event, Lock

from ffscope.errors import LabellerError
from ffscope.labelling.cost import Cost, Price, Tokens
from ffscope.labelling.endpoint import Answer, Endpoint, Question, RefusedError

FILE = "labeller.sqlite"
_TABLE = """
CREATE TABLE IF NOT EXISTS answers (
    question TEXT PRIMARY KEY, model TEXT NOT NULL, answer TEXT NOT NULL, finish TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, answered TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
) WITHOUT ROWID
"""


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
                self._database.execute(_TABLE)
        except LabellerError:
            self.close()
            raise

    def close(self) -> None:
        self._database.close()

    def get(self, question: Question) -> Answer | None:
        """The answer to a question that was asked before."""
        query = "SELECT answer, finish, prompt_tokens, completion_tokens FROM answers WHERE question = ?"
        with self._lock, self._one_sentence():
            row = self._database.execute(query, [digest(question)]).fetchone()
        return None if row is None else Answer(*row)

    def put(self, question: Question, answer: Answer) -> None:
        """Keep an answer. It is on the disk when this returns."""
        into = "INSERT OR REPLACE INTO answers (question, model, answer, finish, prompt_tokens, completion_tokens)"
        with self._lock, self._one_sentence():
            self._database.execute(
                f"{into} VALUES (?, ?, ?, ?, ?, ?)", [digest(question), question["model"], *astuple(answer)]
            )

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
        self.stopped, self.cost = Event(), Cost(price=price)
        self._counting, self._asking = Lock(), dict[str, Lock]()

    def ask(self, messages: list[dict[str, str]]) -> Answer:
        """The answer that is kept, or else the endpoint's."""
        question = self.endpoint.question(messages, seed=self.seed)
        # Two threads that ask the same have one answer between them, whichever comes first.
        with self._asking.setdefault(digest(question), Lock()):
            kept = self.answers.get(question)
            answer = self._paid(question) if kept is None else kept
        counted = Tokens(1, answer.prompt_tokens, answer.completion_tokens)
        with self._counting:
            account = "paid" if kept is None else "kept"
            self.cost = replace(self.cost, **{account: getattr(self.cost, account) + counted})
        return answer

    def _paid(self, question: Question) -> Answer:
        try:
            answer = self.endpoint.ask(question, stopped=self.stopped)
            self.answers.put(question, answer)
        except RefusedError:
            raise
        except LabellerError:
            self.stopped.set()  # what one thread cannot have, as with a wrong key, no other is to ask for
            raise
        return answer
