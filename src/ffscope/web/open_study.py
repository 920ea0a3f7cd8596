"""The study being served: kept open, and reread when it changes on disk."""

import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ffscope.errors import FfscopeError
from ffscope.queries.tables import Tables
from ffscope.study.folder import Study
from ffscope.study.public import path_hider, public
from ffscope.tokens import visible
from ffscope.web.about import about

logger = logging.getLogger(__name__)
_CACHE_SIZE = 200  # responses: one per layer and some more


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary.json of a study's report; empty if there is none or it cannot be read."""
    with suppress(OSError, ValueError):
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return summary if isinstance(summary, dict) else {}
    return {}


class OpenStudy:
    """A study's tables, loaded into memory in the background, and a cache of responses that are slow to compute.

    `prepare` is called whenever the study has changed, to compute in advance what the first request would wait for.
    """

    def __init__(self, folder: Path, prepare: Callable[["OpenStudy"], Any] = lambda study: None) -> None:
        self.folder, self._prepare = folder, prepare
        self._lock = threading.Lock()
        self._version: tuple[int, ...] = ()
        self._tables: Tables | None = None
        self._cache: dict[str, Any] = {}
        self._hide = path_hider(Study(folder, {}))

    @property
    def tables(self) -> Tables:
        """The current tables, reread if a stage has been run since the last request."""
        return self._current()[0]

    def check(self) -> None:
        """Raise if the study's tables cannot be opened."""
        Tables(Study.open(self.folder)).close()

    def cached(self, name: str, compute: Callable[[Tables], Any]) -> Any:
        """The result of `compute` on the current tables, cached under `name`; the oldest entries are dropped."""
        tables, cache = self._current()
        result = cache.get(name)
        if result is None:
            result = compute(tables)
            with self._lock:
                cache[name] = result
                for oldest in list(cache)[:-_CACHE_SIZE]:
                    del cache[oldest]
        return result

    def _current(self) -> tuple[Tables, dict[str, Any]]:
        with self._lock:
            version = self._modified()
            if self._tables is None or version != self._version:
                study = Study.open(self.folder)
                self._tables = Tables(public(study))
                self._hide = path_hider(study)
                self._version, self._cache = version, {}
                threading.Thread(target=self._warm_up, args=(self._tables,), daemon=True).start()
            return self._tables, self._cache

    def summary(self) -> dict[str, Any]:
        """The summary.json of the report."""
        return read_summary(self.folder)

    def about(self, *, model: bool, why: str | None = None) -> dict[str, Any]:
        """The facts embedded in every page, with whether there is a model to ask, or why not."""
        return {**about(self.tables.study), "model": model, "why": why and self.without_paths(why)}

    def without_paths(self, sentence: str) -> str:
        """An error message without the paths of the study, its model and its corpus on this machine."""
        with suppress(FfscopeError, OSError):  # if it fails, only the study's own path is known and hidden
            self._current()
        return self._hide(sentence)

    def _modified(self) -> tuple[int, ...]:
        """Modification times that change with the study: every stage writes the manifest last."""
        files = (self.folder / "study.json", self.folder / "summary.json")
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)

    def _warm_up(self, tables: Tables) -> None:
        """Do in advance what would slow down the first requests."""
        try:
            self._prepare(self)
            tables.load_into_memory()
        except Exception as error:  # requests work without it, or report the error themselves
            reason = visible(str(error), longest=None)
            logger.warning(
                "The tables could not be loaded into memory and are read from disk, which is slower: %s", reason
            )
