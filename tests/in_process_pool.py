"""The pool of the Ray engine without Ray: tasks run in this process, in a random order, and are lost now and then."""

import pickle
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
    """`lost`: the share of tasks whose worker is lost; half of them have finished by then, and their results are computed again.

    `interrupts` is the number of tasks after which Ctrl-C is pressed.
    """

    def __init__(self, model, *, seed=0, lost=0.0, interrupts=None, storage=None, workers=3):
        self.cluster = Cluster(EngineOptions(engine="ray", storage=storage, workers=workers), LoadOptions(), own=True)
        self.model, self.info, self.started, self.lost = model, describe(model), workers, lost
        self.retries, self.calls, self.interrupts = 0, 0, interrupts
        self._generator = np.random.default_rng(seed)
        self._tasks: deque = deque()

    detail = "in this process"

    @property
    def outstanding(self):
        return len(self._tasks)

    @property
    def has_room(self):
        return len(self._tasks) < 3 * self.started

    @contextmanager
    def sending(self, job):
        sent = SentJob(str(id(job)), pickle.dumps(job))
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
        result = None if chance < self.lost / 2 else self._compute(task)
        if chance < self.lost:
            self.retries += 1
            self._tasks.append(task)
            return []
        return [(task, result)]

    def wait_until_idle(self):
        pass

    def _compute(self, task):
        set_model_here(self.model)
        job, value = pickle.loads(task.job.pickled), pickle.loads(pickle.dumps(task.value))
        return pickle.loads(pickle.dumps(job.save(job.compute(self.model if job.model else None, job.load(value)))))
