"""See what the feed-forward layers of a transformer store.

model = ffscope.load("smollm2-135m")
trace = model.trace("The capital of France is")
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ffscope.errors import (
    FfscopeError,
    InputError,
    LayoutError,
    LensError,
    MemoryNameError,
    ProofError,
    SourceError,
)
from ffscope.memory import Memory

if TYPE_CHECKING:
    from ffscope.models.check import Finding, check
    from ffscope.models.loading import load, read
    from ffscope.models.memory_model import MemoryModel, Trace

__version__ = "0.1.0"

__all__ = [
    "FfscopeError",
    "Finding",
    "InputError",
    "LayoutError",
    "LensError",
    "Memory",
    "MemoryModel",
    "MemoryNameError",
    "ProofError",
    "SourceError",
    "Trace",
    "check",
    "load",
    "read",
]

# Names that need torch are fetched when they are first used, so that reading a study, or `--help`, does not wait for it.
_WITH_TORCH = {
    "Finding": "ffscope.models.check",
    "check": "ffscope.models.check",
    "load": "ffscope.models.loading",
    "read": "ffscope.models.loading",
    "MemoryModel": "ffscope.models.memory_model",
    "Trace": "ffscope.models.memory_model",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'ffscope' has no attribute {name!r}")
    return getattr(import_module(_WITH_TORCH[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
