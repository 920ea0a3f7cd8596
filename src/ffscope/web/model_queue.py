"""Questions from all users to the one loaded model, answered one at a time.

A user sees how many questions are ahead; a question is cancelled when its page is left.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ffscope.errors import FfscopeError
from ffscope.tokens import visible

logger = logging.getLogger(__name__)
Stop = Callable[[], bool]
Question = Callable[[Any, Stop], Any]  # called with the live model and a function that says when to give up
_MAX_WAITING = 100
_SHUTTING_DOWN = "The explorer is shutting down."
_CHECK_INTERVAL = 0.1  # seconds between two checks whether the client is still connected


class NoModel(FfscopeError):
    """There is no loaded model."""


class OutOfMemory(FfscopeError):
    """The machine does not have enough memory for the question."""


class QueueFull(FfscopeError):
    """Too many questions are waiting already."""


class CancelledQuestion(FfscopeError):
    """The client disconnected before the answer."""


@dataclass(eq=False)
class _Job:
    question: Question
    ticket: str
    answer: Future = field(default_factory=Future)
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class QueueStatus:
    """The state of the model, the number of questions in the queue, and how many are ahead of a ticket's question."""

    state: str  # none, loading, ready or failed
    why: str | None
    waiting: int
    ahead: int | None


class ModelQueue:
    """A thread that loads the model and then answers questions in order of arrival."""

    def __init__(
        self,
        load: Callable[[], Any] | None,
        *,
        why: str | None = None,
        before: Callable[[], object] = lambda: None,
        report: Callable[[str], object] = logger.info,
    ) -> None:
        """`before` is called in the model's thread before every question; `report` once, with the outcome of loading."""
        self.live: Any = None
        self._about: Any = None
        self._load, self._before, self._report = load, before, report
        self._state, self._why = ("none", why) if load is None else ("loading", None)
        self._jobs: deque[_Job] = deque()
        self._running: _Job | None = None
        self._changed = threading.Condition()
        self._closed = False

    def start(self) -> None:
        """Start loading the model, if there is one."""
        if self._load is not None:
            threading.Thread(target=self._work, name="model", daemon=True).start()

    def close(self) -> None:
        """Stop the thread; waiting questions get an error."""
        with self._changed:
            self._closed = True
            waiting, self._jobs = self._jobs, deque()
            if self._running:
                self._running.cancelled.set()
            self._changed.notify_all()
        _reject(waiting, _SHUTTING_DOWN)

    @property
    def about(self) -> Any:
        """The live model's description; None until it is loaded."""
        return self._about

    @property
    def has_model(self) -> bool:
        """Whether the model is loaded or loading."""
        return self._state in ("loading", "ready")

    def status(self, ticket: str = "") -> QueueStatus:
        """The state of the queue, and the place of a ticket's question in it."""
        with self._changed:
            jobs = [*([self._running] if self._running else []), *self._jobs]
            ahead = next((i for i, job in enumerate(jobs) if ticket and job.ticket == ticket), None)
            return QueueStatus(self._state, self._why, len(jobs), ahead)

    async def ask(self, question: Question, *, ticket: str, is_disconnected: Callable[[], Awaitable[bool]]) -> Any:
        """The model's answer. If the client disconnects, the question is cancelled, even while it is being answered."""
        job = self._enqueue(_Job(question, ticket))
        answer = asyncio.wrap_future(job.answer)
        answer.add_done_callback(_retrieve_exception)
        try:
            while not answer.done():
                await asyncio.wait([answer], timeout=_CHECK_INTERVAL)
                if not answer.done() and await is_disconnected():
                    raise CancelledQuestion("The question was cancelled.")
            return answer.result()
        finally:
            self._cancel(job)

    def _enqueue(self, job: _Job) -> _Job:
        with self._changed:
            if not self.has_model or self._closed:
                raise NoModel(self._why or "The model is not loaded. Restart ffscope serve.")
            if len(self._jobs) >= _MAX_WAITING:
                raise QueueFull(f"{_MAX_WAITING} questions are already waiting for the model. Try again later.")
            self._jobs.append(job)
            self._changed.notify_all()
        return job

    def _cancel(self, job: _Job) -> None:
        job.cancelled.set()
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def _work(self) -> None:
        try:
            assert self._load is not None
            self.live = self._load()
            self._about = self.live.about()
        except BaseException as error:  # SystemExit too, which would end the thread silently
            self._fail(error)
            return
        self._state = "ready"
        self._report(_loaded(self._about))
        while (job := self._next()) is not None:
            self._answer(job)

    def _fail(self, error: BaseException) -> None:
        """Record why there is no model, and answer all waiting questions with the reason."""
        if self._closed:  # a consequence of shutting down
            return
        reason = str(error) if isinstance(error, FfscopeError) else f"{type(error).__name__}: {error}"
        # The message may contain a path from study.json, which is untrusted.
        why = f"The model could not be loaded: {visible(reason, longest=None)}"
        self._report(why)
        with self._changed:
            self._state, self._why = "failed", why
            jobs, self._jobs = self._jobs, deque()
        _reject(jobs, why)

    def _next(self) -> _Job | None:
        with self._changed:
            self._running = None
            self._changed.wait_for(lambda: bool(self._jobs) or self._closed)
            if self._closed:
                return None
            self._running = self._jobs.popleft()
            return self._running

    def _answer(self, job: _Job) -> None:
        if job.cancelled.is_set() or not job.answer.set_running_or_notify_cancel():
            return
        try:
            self._before()
            deliver = partial(job.answer.set_result, job.question(self.live, job.cancelled.is_set))
        except BaseException as error:
            deliver = partial(job.answer.set_exception, _as_response_error(error))
        with self._changed:  # first, so that nobody who has the answer still sees the question in the queue
            self._running = None
        deliver()


def _loaded(about: Any) -> str:
    name = "" if about is None else f" ({visible(about.model.rstrip('/').rpartition('/')[2])}, {about.device})"
    return f"The model is loaded{name}; prompts can be run now."


def _reject(jobs: Iterable[_Job], why: str) -> None:
    for job in jobs:
        if job.answer.set_running_or_notify_cancel():  # else the client has just disconnected
            job.answer.set_exception(NoModel(why))


def _as_response_error(error: BaseException) -> BaseException:
    """The error to raise in the request, with advice if there is any."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return OutOfMemory("The machine does not have enough memory for this. Use a shorter text or fewer new tokens.")
    # A future refuses StopIteration and would never complete.
    return RuntimeError(repr(error)) if isinstance(error, StopIteration) else error


def _retrieve_exception(answer: asyncio.Future) -> None:
    """Keeps asyncio from logging an error that arrives after the client has disconnected."""
    if not answer.cancelled():
        answer.exception()
