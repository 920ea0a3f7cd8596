"""A worker: a process of the cluster that holds the model and computes shards with it, one at a time.

Torch is imported where it is used, so that the driver can start workers first and import it at the same time as they do.
"""

import os
import pickle
import platform
import threading
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import ray

from ffscope.errors import FfscopeError, first_line
from ffscope.options.model import LoadOptions
from ffscope.study.folder import versions

if TYPE_CHECKING:
    from ffscope.models.info import ModelInfo
    from ffscope.models.memory_model import MemoryModel

AT_ONCE = 3
"""Calls of a worker that may run at once: one computes, while others read and write; the third is for merges."""

_JOBS = 2  # that a worker keeps unpickled: a search, and its merges


@dataclass(frozen=True)
class Setup:
    """What a worker needs to start."""

    source: str | None
    load: LoadOptions
    threads: int


class Start(NamedTuple):
    """What a worker reports when it has started."""

    node: str  # of the cluster
    device: str  # its name
    versions: dict[str, str]
    info: "ModelInfo | None"


class Outcome(NamedTuple):
    """The result of a call, or the error that it ended with."""

    result: Any = None
    error: FfscopeError | None = None  # as it would be raised on one machine: no use in trying again
    failure: str | None = None  # any other, in words
    details: str = ""
    host: str = ""


class Job(ABC):
    """Work on numbered inputs. What `load` and `save` do may overlap with the computation of another input."""

    model = True  # whether it needs the model
    exclusive = True  # whether no other input may be computed at the same time

    def load(self, value: Any) -> Any:
        """What `compute` needs, from the input of a call."""
        return value

    @abstractmethod
    def compute(self, model: Any, value: Any) -> Any:
        """The result for one input."""

    def save(self, result: Any) -> Any:
        """What is sent to the driver for a result."""
        return result


class Mapped(Job):
    """A function of the model and an input."""

    def __init__(self, function: Callable[[Any, Any], Any], *, model: bool) -> None:
        self.function, self.model = function, model

    def compute(self, model: Any, value: Any) -> Any:
        return self.function(model, value)


class Worker:
    """The actor. It loads the model when something needs it."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        os.environ["OMP_NUM_THREADS"] = str(setup.threads)  # of further threads; Ray has set the number of cores
        self._computing, self._unpickling = threading.Lock(), threading.Lock()
        self._jobs: dict[str, Job] = {}

    def start(self) -> Outcome:
        """Load the model, if there is one, and report on it."""
        return self._guarded(self._start)

    def call(self, key: str, job: bytes, value: Any) -> Outcome:
        """The result of a job for one input. The job is pickled, and unpickled once."""
        return self._guarded(lambda: self._call(key, job, value))

    def _start(self) -> Start:
        node = ray.get_runtime_context().get_node_id()
        if self._setup.source is None:
            return Start(node, "none", versions(), None)
        import torch

        from ffscope.models.info import describe

        info = describe(self._model)
        threading.Thread(target=self._warm_up, name="warm-up", daemon=True).start()
        name = torch.cuda.get_device_name() if info.device.type == "cuda" else info.device.type
        return Start(node, name, versions(), info)

    @cached_property
    def _model(self) -> "MemoryModel":
        from ffscope.models.here import set_model_here
        from ffscope.models.loading import load

        assert self._setup.source is not None
        model = load(self._setup.source, **self._setup.load.arguments)
        set_model_here(model)
        return model

    def _warm_up(self) -> None:
        """Prepare for the first shard while the driver reads the text. What fails here also fails in a shard, and is reported."""
        from ffscope.search.execute import warm_up

        with self._computing, suppress(Exception):
            warm_up(self._model)

    def _call(self, key: str, job: bytes, value: Any) -> Any:
        import torch

        torch.set_num_threads(self._setup.threads)  # of this thread
        unpickled = self._job(key, job)
        loaded = unpickled.load(value)
        with self._computing if unpickled.exclusive else nullcontext():
            result = unpickled.compute(self._model if unpickled.model else None, loaded)
        return unpickled.save(result)

    def _job(self, key: str, pickled: bytes) -> Job:
        with self._unpickling:
            if key not in self._jobs:
                self._jobs = dict(list(self._jobs.items())[1 - _JOBS :])  # the latest ones
                self._jobs[key] = pickle.loads(pickled)
            return self._jobs[key]

    def _guarded(self, action: Callable[[], Any]) -> Outcome:
        """The outcome of an action. Errors are returned, since the cluster would wrap them."""
        try:
            return Outcome(action(), host=platform.node())
        except FfscopeError as error:
            return Outcome(error=error, details=traceback.format_exc(), host=platform.node())
        except Exception as error:  # reported by the driver, which tries again
            failure = f"{type(error).__name__}: {first_line(error)}"
            return Outcome(failure=failure, details=traceback.format_exc(), host=platform.node())
