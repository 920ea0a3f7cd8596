"""See what the feed-forward layers of a transformer store.

model = ffscope.load("smollm2-135m")
trace = model.trace("The capital of France is")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ffscope.errors import (
    CoefficientError,
    CorpusError,
    EngineError,
    FfscopeError,
    InputError,
    LabellerError,
    LayoutError,
    LensError,
    MemoryNameError,
    ProofError,
    SourceError,
    StudyError,
)
from ffscope.memory_name import Memory

if TYPE_CHECKING:
    from ffscope.differences import diff
    from ffscope.editing.promote import Promotion, promote
    from ffscope.editing.record import Edited
    from ffscope.editing.undo import undo
    from ffscope.editing.written import edit
    from ffscope.engines import start_engine
    from ffscope.leaks.exposure import Exposure, exposure
    from ffscope.models.check import Finding, check
    from ffscope.models.loading import load, read
    from ffscope.models.memory_model import MemoryModel, Trace
    from ffscope.options.corpus import CorpusOptions
    from ffscope.options.engine import EngineOptions
    from ffscope.options.search import SearchOptions
    from ffscope.pipeline import analyse, learn_lenses, prune, run, triggers
    from ffscope.pruning.written import Pruned
    from ffscope.queries.memory import memory_page
    from ffscope.study.folder import Study
    from ffscope.study.results import Results, open

__version__ = "0.1.0"

__all__ = [
    "CoefficientError",
    "CorpusError",
    "CorpusOptions",
    "Edited",
    "EngineError",
    "EngineOptions",
    "Exposure",
    "FfscopeError",
    "Finding",
    "InputError",
    "LabellerError",
    "LayoutError",
    "LensError",
    "Memory",
    "MemoryModel",
    "MemoryNameError",
    "Promotion",
    "ProofError",
    "Pruned",
    "Results",
    "SearchOptions",
    "SourceError",
    "Study",
    "StudyError",
    "Trace",
    "analyse",
    "check",
    "diff",
    "edit",
    "exposure",
    "learn_lenses",
    "load",
    "memory_page",
    "open",
    "promote",
    "prune",
    "read",
    "run",
    "start_engine",
    "triggers",
    "undo",
]

# Names that need torch, pyarrow or duckdb are imported on first use, so that `--help` is fast and a study can be read without
# torch.
_LAZY = {
    "Finding": "ffscope.models.check",
    "check": "ffscope.models.check",
    "load": "ffscope.models.loading",
    "read": "ffscope.models.loading",
    "MemoryModel": "ffscope.models.memory_model",
    "Trace": "ffscope.models.memory_model",
    "start_engine": "ffscope.engines",
    "Promotion": "ffscope.editing.promote",
    "promote": "ffscope.editing.promote",
    "Edited": "ffscope.editing.record",
    "edit": "ffscope.editing.written",
    "undo": "ffscope.editing.undo",
    "CorpusOptions": "ffscope.options.corpus",
    "EngineOptions": "ffscope.options.engine",
    "SearchOptions": "ffscope.options.search",
    "analyse": "ffscope.pipeline",
    "learn_lenses": "ffscope.pipeline",
    "diff": "ffscope.differences",
    "exposure": "ffscope.leaks.exposure",
    "Exposure": "ffscope.leaks.exposure",
    "prune": "ffscope.pipeline",
    "run": "ffscope.pipeline",
    "triggers": "ffscope.pipeline",
    "Pruned": "ffscope.pruning.written",
    "Results": "ffscope.study.results",
    "open": "ffscope.study.results",
    "memory_page": "ffscope.queries.memory",
    "Study": "ffscope.study.folder",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'ffscope' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
