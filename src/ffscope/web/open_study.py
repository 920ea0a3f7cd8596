"""The study that is being explored: open all the time, read anew when it changes on the disk."""

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
_MOST_KEPT = 200  # answers; a model's layers, and some more


def read_summary(folder: Path) -> dict[str, Any]:
    """What a study's report is drawn from; empty where there is none that can be read."""
    with suppress(OSError, ValueError):
        summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return summary if isinstance(summary, dict) else {}
    return {}


class OpenStudy:
    """A study's tables, held in memory as soon as they are there, and answers that cost more than a moment.

    `prepare` makes what would keep the first visitor waiting; it is called whenever the study has changed.
    """

    def __init__(self, folder: Path, prepare: Callable[["OpenStudy"], Any] = lambda study: None) -> None:
        self.folder, self._prepare = folder, prepare
        self._lock = threading.Lock()
        self._version: tuple[int, ...] = ()
        self._tables: Tables | None = None
        self._kept: dict[str, Any] = {}
        self._hide = path_hider(Study(folder, {}))

    @property
    def tables(self) -> Tables:
        """The tables as they are now. A stage that was done since is seen at the next question."""
        return self._now()[0]

    def check(self) -> None:
        """Raise where the study's tables cannot be opened."""
        Tables(Study.open(self.folder)).close()

    def kept(self, name: str, make: Callable[[Tables], Any]) -> Any:
        """What was made of these tables before under a name, or is made now; the oldest makes room."""
        tables, kept = self._now()
        found = kept.get(name)
        if found is None:
            found = make(tables)
            with self._lock:
                kept[name] = found
                for old in list(kept)[:-_MOST_KEPT]:
                    del kept[old]
        return found

    def _now(self) -> tuple[Tables, dict[str, Any]]:
        with self._lock:
            version = self._stamp()
            if self._tables is None or version != self._version:
                study = Study.open(self.folder)
                self._tables = Tables(public(study))
                self._hide = path_hider(study)
                self._version, self._kept = version, {}
                threading.Thread(target=self._get_ready, args=(self._tables,), daemon=True).start()
            return self._tables, self._kept

    def summary(self) -> dict[str, Any]:
        """What the report is drawn from."""
        return read_summary(self.folder)

    def about(self, *, model: bool, why: str | None = None) -> dict[str, Any]:
        """What every page knows of the study, and whether its model may be asked, or why not."""
        return {**about(self.tables.study), "model": model, "why": why and self.without_paths(why)}

    def without_paths(self, sentence: str) -> str:
        """What went wrong, in a sentence that does not say where the study, its model and its text are on this machine."""
        with suppress(FfscopeError, OSError):  # then the study's own path is all that is known, and hidden
            self._now()
        return self._hide(sentence)

    def _stamp(self) -> tuple[int, ...]:
        """Changes whenever the study does: its manifest is written last at each stage."""
        files = (self.folder / "study.json", self.folder / "summary.json")
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)

    def _get_ready(self, tables: Tables) -> None:
        """What would make the first answers slow, done before anyone asks."""
        try:
            self._prepare(self)
            tables.hold()
        except Exception as error:  # of whatever kind: questions are answered without it, or say what is wrong
            said = visible(str(error), longest=None)
            logger.warning("The study is read from its files, which is slower, and not held in memory: %s", said)
