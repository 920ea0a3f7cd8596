"""Caches answers in the study folder, so that none is paid for twice."""

import hashlib
import json
from threading import Lock

from ffscope.errors import LabellerError
from ffscope.labelling.cost import Cost, Price, Tokens
from ffscope.labelling.endpoint import Endpoint, Question, RefusedError
from ffscope.queries.labeller_answers import Answer, Answers


def digest(question: Question) -> str:
    """The digest of a question: the same for the same model, messages and parameters."""
    return hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()


class CachedEndpoint:
    """An endpoint with a cache of answers and their cost. Any number of threads may use it at once."""

    def __init__(self, endpoint: Endpoint, answers: Answers, *, seed: int, price: Price | None = None) -> None:
        self.endpoint, self.answers, self.seed = endpoint, answers, seed
        self.paid: set[str] = set()  # digests of the questions that were answered in this run
        self.stopped = endpoint.stopped
        self.stopped.clear()
        self._price, self._tokens = price, dict[str, Tokens]()
        self._counting, self._asking = Lock(), dict[str, Lock]()

    @property
    def cost(self) -> Cost:
        """The cost of the answers so far; each question counts once."""
        with self._counting:
            paid, cached = Tokens(), Tokens()
            for name, tokens in self._tokens.items():
                paid, cached = (paid + tokens, cached) if name in self.paid else (paid, cached + tokens)
        return Cost(paid, cached, self._price)

    def ask(self, messages: list[dict[str, str]]) -> Answer:
        """The cached answer, or else the endpoint's."""
        question = self.endpoint.question(messages, seed=self.seed)
        name = digest(question)
        # Threads that ask the same question share one answer.
        with self._asking.setdefault(name, Lock()):
            answer = self.answers.get(name) or self._fetch(name, question)
        with self._counting:
            self._tokens[name] = Tokens(1, answer.prompt_tokens, answer.completion_tokens)
        return answer

    def store(self, name: str, model: str, answer: Answer) -> None:
        """Store an answer that was paid for in this run."""
        self.answers.put(name, model, answer)
        with self._counting:
            self.paid.add(name)

    def _fetch(self, name: str, question: Question) -> Answer:
        """Get an answer from the endpoint and store it."""
        try:
            answer = self.endpoint.ask(question)
            self.store(name, question["model"], answer)
        except RefusedError:
            raise
        except LabellerError:
            self.stopped.set()  # for instance a wrong key: the other threads would fail too
            raise
        return answer
