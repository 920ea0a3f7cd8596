"""Engines: where a model runs. Each is a module or package here, named after the engine, with a function `start`.

`start(source, load, options)` is a context manager that gives the running engine. `base` is what all engines share.
"""

from contextlib import AbstractContextManager
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ffscope.engines.base import Engine
    from ffscope.options.engine import EngineOptions

_NOT_ENGINES = ("base", "sharded_table")


def engine_names() -> tuple[str, ...]:
    """The names of all engines."""
    return tuple(sorted(module.name for module in iter_modules(__path__) if module.name not in _NOT_ENGINES))


def start_engine(source: str | None, options: "EngineOptions", **load: Any) -> "AbstractContextManager[Engine]":
    """A running engine, for as long as the `with` block lasts. `run`, `triggers` and `analyse` take it in place of a model.

    `source` is the model's, and None for a stage without a model; `load` are further arguments of `ffscope.load`.
    """
    from ffscope.options.model import LoadOptions

    options = options.resolved()
    return import_module(f"{__name__}.{options.engine}").start(source, LoadOptions(**load), options)
