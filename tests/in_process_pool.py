"""The pool of the Ray engine without Ray: tasks run in this process, in a random order, and are lost now and then."""

import pickle
import uuid
from collections import deque
from contextlib import contextmanager

import numpy as np

from ffscope.engines.ray.cluster import Cluster
from ffscope.engines.ray.pool import SentJob
from ffscope.models.here import set_model_here
from ffscope.models.info import describe
from ffscope.options.engine import EngineOptions
from ffscope.options.model import LoadOptions


class InProcessPool:
    """`lost`: the share of tasks that fail: a third each before they begin, before their result is saved, and after that. Half of
    them lose their worker.

    `interrupts` is the number of tasks after which Ctrl-C is pressed.
    """

    def __init__(self, model, *, seed=0, lost=0.0, interrupts=None, storage=None, workers=3):
        self.cluster = Cluster(EngineOptions(engine="ray", storage=storage, workers=workers), LoadOptions(), own=True)
        self.model, self.info, self.started, self.lost = model, describe(model), workers, lost
        self.retries, self.calls, self.interrupts = 0, 0, interrupts
        self._generator = np.random.default_rng(seed)
        self._tasks: deque = deque()
        self._jobs: list[dict] = [{} for _ in range(workers)]  # of each worker, unpickled

    detail = "in this process"

    @property
    def outstanding(self):
        return len(self._tasks)

    @property
    def has_room(self):
        return len(self._tasks) < 3 * self.started

    @contextmanager
    def sending(self, job):
        sent = SentJob(uuid.uuid4().hex, pickle.dumps(job))
        try:
            yield sent
        finally:
            self._tasks = deque(task for task in self._tasks if task.job is not sent)

    def submit(self, task, *, first=False):
        self._tasks.append(task)

    def step(self, seconds):
        if not self._tasks:
            return []
        self.calls += 1
        if self.calls == self.interrupts:
            raise KeyboardInterrupt
        self._tasks.rotate(int(self._generator.integers(len(self._tasks))))
        task, chance = self._tasks.popleft(), self._generator.random()
        worker = int(self._generator.integers(len(self._jobs)))
        result = None
        if chance >= self.lost / 3:
            result = self._compute(task, self._jobs[worker], save=chance >= self.lost * 2 / 3)
        if chance < self.lost:
            self.retries += 1
            if self._generator.random() < 0.5:
                self._jobs[worker] = {}
            self._tasks.append(task)
            return []
        return [(task, result)]

    def wait_until_idle(self):
        pass

    def _compute(self, task, jobs, *, save):
        set_model_here(self.model)
        job = jobs.setdefault(task.job.key, pickle.loads(task.job.pickled))
        value = pickle.loads(pickle.dumps(task.value))
        result = job.compute(self.model if job.model else None, job.load(value))
        return pickle.loads(pickle.dumps(job.save(result))) if save else None
