"""The base class of engines, which run a model for the stages."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from torch import Tensor

from ffscope.corpus.readers import Splitter, splitting
from ffscope.corpus.reading import Reading
from ffscope.corpus.sentences import SentenceSplitter
from ffscope.errors import InputError
from ffscope.models.info import ModelInfo
from ffscope.models.memory_model import MemoryModel
from ffscope.progress import ProgressCallback
from ffscope.search.plan import Plan
from ffscope.study.folder import Study

Function = Callable[[Any, Any], Any]
"""f(model, input) returns a result. It and the input can be pickled."""


class SearchResult(NamedTuple):
    """The state of a finished search, and how long it took, including the time before it was resumed."""

    state: dict[str, Tensor]
    seconds: float


class Engine(ABC):
    """Runs a model. The results do not depend on the engine."""

    name: str

    @property
    def waits_for_text(self) -> bool:
        """Whether a search begins only when it is known how much text there is."""
        return True

    @property
    def device(self) -> str | None:
        """Where this process computes; None for anywhere."""
        return None

    @property
    @abstractmethod
    def info(self) -> ModelInfo:
        """The description of the model."""

    @property
    @abstractmethod
    def has_model(self) -> bool:
        """Whether there is a model; a stage that needs none may run without."""

    @property
    @abstractmethod
    def model(self) -> MemoryModel:
        """The model, loaded in this process."""

    @abstractmethod
    def map(
        self, name: str, function: Function, inputs: Iterable[tuple[int, Any]], *, model: bool = True
    ) -> Iterator[tuple[int, Any]]:
        """The numbers of the inputs and f(model, input), in any order; with `model=False`, f(None, input).

        `name` says what is computed, for an error.
        """

    @abstractmethod
    def search(
        self, reading: Reading, plan: Plan, *, checkpoint_every: float, progress: ProgressCallback
    ) -> SearchResult | None:
        """Search every batch of the plan. If interrupted, leave what is done. None if too much text was assumed."""

    @abstractmethod
    def search_note(self, study: Study) -> dict[str, Any] | None:
        """The note of an unfinished search of this engine: settings, total, corpus; None if there is none to resume."""

    @abstractmethod
    def discard_search(self, study: Study) -> None:
        """Delete what an unfinished search left."""

    def warm_up(self) -> None:  # noqa: B027 - most engines need not
        """Prepare for a search while the text is being read."""

    def prefixes_per_second(self, function: Function, trial: Any) -> float:
        """The rate of a trial search."""
        return next(iter(self.map("the trial search", function, [(0, trial)])))[1]

    @contextmanager
    def splitting(self, splitter: SentenceSplitter, readers: int) -> Iterator[Splitter]:
        """What splits groups of paragraphs into sentences: see `corpus.readers`."""
        with splitting(splitter, readers) as split:
            yield split

    def detail(self) -> str | None:
        """How the work is spread, for the progress."""
        return None


def missing_model() -> InputError:
    """The error of a stage that needs a model where there is none."""
    return InputError("This stage needs the studied model, but none was passed. Load it with ffscope.load and pass it.")
