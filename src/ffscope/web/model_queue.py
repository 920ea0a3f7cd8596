"""The model, asked by many, answers one at a time. Whoever waits can see how many are in front, and can leave."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from ffscope.errors import FfscopeError
from ffscope.tokens import visible

logger = logging.getLogger(__name__)
Stop = Callable[[], bool]
Question = Callable[[Any, Stop], Any]  # asked of the live model; gives up when told to stop
_MOST_WAITING = 100
_ENDING = "The explorer is ending."
_EVERY = 0.1  # seconds between two looks at whether the asker is still there


class NoModel(FfscopeError):
    """The model is not there to be asked."""


class NoRoom(FfscopeError):
    """The machine has not enough memory for what was asked."""


class Busy(FfscopeError):
    """Too many are waiting already."""


class Left(FfscopeError):
    """Whoever asked has gone."""


@dataclass(eq=False)
class _Job:
    question: Question
    ticket: str
    answer: Future = field(default_factory=Future)
    left: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True)
class Place:
    """How the model is, how many wait for it, and how many of them are in front of a ticket's question."""

    state: str  # none, loading, ready or failed
    why: str | None
    waiting: int
    ahead: int | None


class ModelQueue:
    """One thread that loads the model and then answers, first come, first served."""

    def __init__(
        self,
        load: Callable[[], Any] | None,
        *,
        why: str | None = None,
        before: Callable[[], object] = lambda: None,
        report: Callable[[str], object] = logger.info,
    ) -> None:
        """`before` is called in the model's thread ahead of every question; `report` is told once how loading ended."""
        self.live: Any = None
        self._about: Any = None
        self._load, self._before, self._report = load, before, report
        self._state, self._why = ("none", why) if load is None else ("loading", None)
        self._jobs: deque[_Job] = deque()
        self._running: _Job | None = None
        self._changed = threading.Condition()
        self._closed = False

    def start(self) -> None:
        """Begin to load the model, where there is one."""
        if self._load is not None:
            threading.Thread(target=self._work, name="model", daemon=True).start()

    def close(self) -> None:
        """Let the thread end; those who wait are told."""
        with self._changed:
            self._closed = True
            waiting, self._jobs = self._jobs, deque()
            if self._running:
                self._running.left.set()
            self._changed.notify_all()
        _send_away(waiting, _ENDING)

    @property
    def about(self) -> Any:
        """What the live model says of itself; None as long as it is not there."""
        return self._about

    @property
    def has_model(self) -> bool:
        """Whether the model is there or will be."""
        return self._state in ("loading", "ready")

    def place(self, ticket: str = "") -> Place:
        """Where a question stands."""
        with self._changed:
            line = [*([self._running] if self._running else []), *self._jobs]
            ahead = next((i for i, job in enumerate(line) if ticket and job.ticket == ticket), None)
            return Place(self._state, self._why, len(line), ahead)

    async def ask(self, question: Question, *, ticket: str, is_gone: Callable[[], Awaitable[bool]]) -> Any:
        """The model's answer. When the asker is gone the question is taken back, also while it is being answered."""
        job = self._join(_Job(question, ticket))
        waiting = asyncio.wrap_future(job.answer)
        waiting.add_done_callback(_heard)
        try:
            while not waiting.done():
                await asyncio.wait([waiting], timeout=_EVERY)
                if not waiting.done() and await is_gone():
                    raise Left("The question was taken back.")
            return waiting.result()
        finally:
            self._leave(job)

    def _join(self, job: _Job) -> _Job:
        with self._changed:
            if not self.has_model or self._closed:
                raise NoModel(self._why or "The model is not there. Start ffscope serve again.")
            if len(self._jobs) >= _MOST_WAITING:
                raise Busy(f"{_MOST_WAITING} questions wait for the model already. Try again in a while.")
            self._jobs.append(job)
            self._changed.notify_all()
        return job

    def _leave(self, job: _Job) -> None:
        job.left.set()
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    def _work(self) -> None:
        try:
            assert self._load is not None
            self.live = self._load()
            self._about = self.live.about()
        except BaseException as error:  # also what would end the program, were this not a thread
            self._fail(error)
            return
        self._state = "ready"
        self._report(_loaded(self._about))
        while (job := self._next()) is not None:
            self._answer(job)

    def _fail(self, error: BaseException) -> None:
        """Without a model all who wait are told why."""
        if self._closed:  # the program is ending around it
            return
        said = str(error) if isinstance(error, FfscopeError) else f"{type(error).__name__}: {error}"
        said = visible(said, longest=None)  # a study says where its model is, and may be another person's
        why = f"The model could not be loaded: {said}"
        self._report(why)
        with self._changed:
            self._state, self._why = "failed", why
            jobs, self._jobs = self._jobs, deque()
        _send_away(jobs, why)

    def _next(self) -> _Job | None:
        with self._changed:
            self._running = None
            self._changed.wait_for(lambda: bool(self._jobs) or self._closed)
            if self._closed:
                return None
            self._running = self._jobs.popleft()
            return self._running

    def _answer(self, job: _Job) -> None:
        if job.left.is_set() or not job.answer.set_running_or_notify_cancel():
            return
        try:
            self._before()
            job.answer.set_result(job.question(self.live, job.left.is_set))
        except BaseException as error:
            job.answer.set_exception(_told(error))


def _loaded(about: Any) -> str:
    name = "" if about is None else f" ({visible(about.model.rstrip('/').rpartition('/')[2])}, {about.device})"
    return f"The model is loaded{name}; prompts can be asked now."


def _send_away(jobs: Iterable[_Job], why: str) -> None:
    for job in jobs:
        if job.answer.set_running_or_notify_cancel():  # else whoever asked has gone just now
            job.answer.set_exception(NoModel(why))


def _told(error: BaseException) -> BaseException:
    """What went wrong, as whoever asked can mend it."""
    if isinstance(error, MemoryError) or "out of memory" in str(error).lower():
        return NoRoom("The machine has not enough memory for this. Ask for a shorter text, or fewer new tokens.")
    # A future cannot hold what ends a generator, and would never be answered.
    return RuntimeError(repr(error)) if isinstance(error, StopIteration) else error


def _heard(answer: asyncio.Future) -> None:
    """An answer that comes after the asker has gone, an error too, is nothing to complain about in the terminal."""
    if not answer.cancelled():
        answer.exception()
