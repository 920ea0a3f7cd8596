"""The workers of a cluster, and the handing out of tasks to them: what a lost worker had is given to another."""

import logging
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import ray
from ray.exceptions import GetTimeoutError, RayError

from ffscope.engines.ray.cluster import Cluster
from ffscope.engines.ray.worker import AT_ONCE, Job, Outcome, Setup, Start, Worker
from ffscope.errors import EngineError, first_line
from ffscope.study.folder import versions

if TYPE_CHECKING:
    from ffscope.models.info import ModelInfo

logger = logging.getLogger(__name__)

TRIES = 3
"""How often a shard may fail."""
_DEPTH = 2  # tasks of a worker: one computes while the next one reads what it needs
_POLL, _IDLE = 0.2, 0.02  # seconds


class SentJob(NamedTuple):
    """A job that all workers can fetch."""

    key: str
    pickled: Any


class Task(NamedTuple):
    """One call of a worker: shard `number` of what `stage` names."""

    stage: str
    number: int
    job: SentJob
    value: Any
    extra: bool = False  # handed out beyond the usual number of tasks: it does not compute with the model
    alone: bool = False  # handed to a worker without other tasks, so that its loss is known to be this one's


@dataclass(eq=False)
class _Member:
    actor: Any
    starting: Any  # the reference of its start, until it has started
    host: str = ""
    node: str = ""
    tasks: dict[Any, Task | None] = field(default_factory=dict)  # by reference, the oldest first; None: not wanted

    def has_room_for(self, task: Task) -> bool:
        """Whether it can be handed this task now."""
        if self.starting is not None or any(held and held.alone for held in self.tasks.values()):
            return False
        return not self.tasks if task.alone else len(self.tasks) < (AT_ONCE if task.extra else _DEPTH)


class Pool:
    """Workers that start, compute, and are replaced when they are lost."""

    def __init__(self, cluster: Cluster, source: str | None) -> None:
        self.cluster = cluster
        self._setup = Setup(source, cluster.load, cluster.threads)
        self._class: Any = ray.remote(Worker).options(
            num_cpus=cluster.cores, num_gpus=cluster.gpus, max_concurrency=AT_ONCE, max_restarts=0
        )
        self._waiting: deque[Task] = deque()
        self._failures: Counter[tuple[str, str, int]] = Counter()
        self._failed_starts = self.retries = 0
        self._first: Start | None = None
        self._members = [self._new_member() for _ in range(cluster.workers)]

    @classmethod
    @contextmanager
    def of(cls, cluster: Cluster, source: str | None) -> Iterator["Pool"]:
        """Workers for a model, stopped at the end of the block."""
        pool = cls(cluster, source)
        try:
            yield pool
        finally:
            pool.stop()

    @property
    def started(self) -> int:
        """How many workers have started."""
        return sum(member.starting is None for member in self._members)

    @property
    def detail(self) -> str:
        """How the work is spread, in words."""
        wanted, started = len(self._members), self.started
        workers = f"{'' if started == wanted else f'{started} of '}{wanted} worker{'s' if wanted > 1 else ''}"
        return f"{workers}, {self.retries} retried" if self.retries else workers

    @property
    def info(self) -> "ModelInfo | None":
        """The description of the model, when the first worker has loaded it."""
        while self._first is None:
            self.step(_POLL)
        return self._first.info

    @property
    def outstanding(self) -> int:
        """How many tasks have been submitted and not returned."""
        computed = (task for member in self._members for task in member.tasks.values())
        return len(self._waiting) + sum(task is not None for task in computed)

    @property
    def has_room(self) -> bool:
        """Whether another task would be handed out soon."""
        return len(self._waiting) < max(1, self.started)

    @contextmanager
    def sending(self, job: Job) -> Iterator[SentJob]:
        """A job that all workers can fetch. Tasks of it that are left at the end of the block, after an error, are not wanted."""
        sent = SentJob(uuid.uuid4().hex, ray.put(_pickled(job)))
        try:
            yield sent
        finally:
            self._waiting = deque(task for task in self._waiting if task.job is not sent)
            for member in self._members:
                member.tasks = {
                    ref: task if task and task.job is not sent else None for ref, task in member.tasks.items()
                }

    def submit(self, task: Task, *, first: bool = False) -> None:
        """Hand out a task, when a worker has room for it; `first` before those that wait."""
        (self._waiting.appendleft if first else self._waiting.append)(task)
        self._hand_out()

    def step(self, seconds: float) -> list[tuple[Task, Any]]:
        """The tasks that finish within that time, with their results. Raises for one that has failed too often."""
        self._hand_out()
        owners = {ref: member for member in self._members for ref in [*filter(None, [member.starting]), *member.tasks]}
        if not owners:
            time.sleep(min(seconds, _IDLE))
            return []
        ready, _ = ray.wait(list(owners), num_returns=1, timeout=seconds)
        if ready:
            ready, _ = ray.wait(list(owners), num_returns=len(owners), timeout=0)
        finished = [pair for ref in ready for pair in self._take(owners[ref], ref)]
        self._hand_out()
        return finished

    def wait_until_idle(self) -> None:
        """Wait for the tasks that are being computed, wanted or not."""
        while any(member.tasks for member in self._members):
            self.step(_POLL)

    def stop(self) -> None:
        """End all workers."""
        for member in self._members:
            with suppress(Exception):  # the cluster may be gone
                ray.kill(member.actor)

    def _new_member(self) -> _Member:
        actor = self._class.remote(self._setup)
        return _Member(actor, actor.start.remote())

    def _hand_out(self) -> None:
        while self._waiting:
            free = [member for member in self._members if member.has_room_for(self._waiting[0])]
            if not free:
                return
            member, task = min(free, key=lambda member: len(member.tasks)), self._waiting.popleft()
            member.tasks[member.actor.call.remote(*task.job, task.value)] = task

    def _take(self, member: _Member, ref: Any) -> Iterator[tuple[Task, Any]]:
        """What came back for a reference: a finished task, if it is one."""
        if member not in self._members:  # it was lost with another of its tasks
            return
        try:
            outcome: Outcome = ray.get(ref, timeout=60)
        except (RayError, GetTimeoutError) as error:
            self._replace(member, first_line(error))
            return
        if ref is member.starting:
            self._note_start(member, outcome)
            return
        task = member.tasks.pop(ref)
        if task is None:
            return
        if outcome.error is not None:
            raise outcome.error
        if outcome.failure is not None:
            logger.debug("%s", outcome.details)
            self._retry(task, f"{outcome.failure} (on {outcome.host})")
        else:
            yield task, outcome.result

    def _note_start(self, member: _Member, outcome: Outcome) -> None:
        if outcome.error is not None:
            raise type(outcome.error)(f"A worker on {outcome.host} cannot start: {outcome.error}")
        if outcome.failure is not None:
            self._replace(member, f"{outcome.failure} (on {outcome.host})")
            return
        start: Start = outcome.result
        check_versions(outcome.host, start.versions)
        if self._first is not None and self._first.info and start.info and self._first.info.entry != start.info.entry:
            raise EngineError(
                f"The worker on {outcome.host} has loaded other weights than the first worker. Expected the same model on every "
                "machine: put it where all can read it."
            )
        if self._first is not None and start.device != self._first.device:
            logger.warning(
                "Workers run on %s and %s: the last digits of coefficients depend on the device.",
                self._first.device,
                start.device,
            )
        self._first = self._first or start
        self._failed_starts = 0
        member.starting, member.host, member.node = None, outcome.host, start.node

    def _replace(self, member: _Member, reason: str) -> None:
        """Start a new worker in place of one that is lost. Its tasks run again.

        Unless the whole node is lost, one of them may have been the reason. It counts as the oldest's failure, which was probably
        being computed; each then runs alone, so that a second loss is counted for the right one.
        """
        with suppress(Exception):
            ray.kill(member.actor)
        self._members.remove(member)
        self._members.append(self._new_member())
        if member.starting is not None:
            self._failed_starts += 1
            if self._failed_starts >= TRIES:
                raise EngineError(f"Workers fail to start, {TRIES} times in a row: {reason}.")
            return
        logger.warning("A worker on %s was lost: %s. What it had runs again.", member.host, reason)
        tasks = [task for task in member.tasks.values() if task is not None]
        if any(node["NodeID"] == member.node and node["Alive"] for node in ray.nodes()):
            self._waiting.extendleft(task._replace(alone=True) for task in reversed(tasks[1:]))
            for task in tasks[:1]:
                self._retry(task._replace(alone=True), f"its worker on {member.host} was lost: {reason}")
        else:
            self.retries += len(tasks)
            self._waiting.extendleft(reversed(tasks))

    def _retry(self, task: Task, reason: str) -> None:
        """Submit a task again, unless it has failed too often."""
        self.retries += 1
        place = task.job.key, task.stage, task.number
        self._failures[place] += 1
        if self._failures[place] >= TRIES:
            raise EngineError(
                f"Shard {task.number} of {task.stage} failed {TRIES} times, the last time because {reason}. Finished shards "
                "are kept: fix the cause, then run the same command to resume."
            )
        self.submit(task, first=True)


def check_versions(host: str, there: dict[str, str]) -> None:
    """Raise if a worker has other versions of what results depend on."""
    for name, here in versions().items():
        if name in there and _public(there[name]) != _public(here):
            raise EngineError(
                f"The worker on {host} has {name} {there[name]}; here it is {here}. Install the same versions on all machines."
            )


def _public(version: str) -> str:
    """A version without its build, such as +cu130."""
    return version.partition("+")[0]


def _pickled(job: Job) -> bytes:
    from ray import cloudpickle

    try:
        return cloudpickle.dumps(job)
    except Exception as error:  # whatever a plugin's object raises
        raise EngineError(
            f"A stage cannot be sent to the workers: {first_line(error)}. Its function and what it refers to must be picklable."
        ) from error
