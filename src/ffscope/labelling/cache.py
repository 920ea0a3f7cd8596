"""Answers that were paid for, kept in the study folder, so that none is ever paid twice."""

import hashlib
import json
from threading import Lock

from ffscope.errors import LabellerError
from ffscope.labelling.cost import Cost, Price, Tokens
from ffscope.labelling.endpoint import Endpoint, Question, RefusedError
from ffscope.queries.labeller_answers import Answer, Answers


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
