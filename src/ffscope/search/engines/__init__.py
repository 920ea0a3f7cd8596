"""Engines that run a search. Each is a module of this package with the name of the engine."""

from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from ffscope.corpus.reading import Reading
from ffscope.errors import StudyError
from ffscope.models.memory_model import MemoryModel
from ffscope.progress import ProgressCallback
from ffscope.search.plan import Plan


class SearchResult(NamedTuple):
    """The state of a finished search, and how long it took, including the time before it was resumed."""

    state: dict[str, Tensor]
    seconds: float


@runtime_checkable
class Engine(Protocol):
    """A module that runs a plan."""

    def run(
        self, reading: Reading, model: MemoryModel, plan: Plan, *, checkpoint_every: float, progress: ProgressCallback
    ) -> SearchResult:
        """Search every batch of the plan. If interrupted, leave a checkpoint in the study."""


def engine_names() -> tuple[str, ...]:
    """The names of the engines."""
    return tuple(module.name for module in iter_modules(__path__))


def engine(name: str) -> Engine:
    """The engine of that name."""
    if name not in engine_names():
        raise StudyError(f"There is no search engine {name!r}. Choose one of: {', '.join(engine_names())}.")
    return import_module(f"{__name__}.{name}")
