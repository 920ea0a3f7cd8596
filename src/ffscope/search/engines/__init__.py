"""Ways to run a search. Each is a module of this package, named as the engine is."""

from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

from ffscope.errors import StudyError
from ffscope.models.memory_model import MemoryModel
from ffscope.progress import ProgressCallback
from ffscope.search.plan import Plan
from ffscope.study.folder import Study


class SearchResult(NamedTuple):
    """What a finished search kept, and how long it took, with what was done before it was resumed."""

    state: dict[str, Tensor]
    seconds: float


@runtime_checkable
class Engine(Protocol):
    """A module that runs a plan to its end."""

    def run(
        self, study: Study, model: MemoryModel, plan: Plan, *, checkpoint_every: float, progress: ProgressCallback
    ) -> SearchResult:
        """Search every batch of the plan. Interrupted, it leaves what it needs to resume in the study."""


def engine_names() -> tuple[str, ...]:
    """The engines there are."""
    return tuple(module.name for module in iter_modules(__path__))


def engine(name: str) -> Engine:
    """The engine of that name."""
    if name not in engine_names():
        raise StudyError(f"There is no search engine {name!r}. Choose one of: {', '.join(engine_names())}.")
    return import_module(f"{__name__}.{name}")
