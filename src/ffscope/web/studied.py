"""The study that is being explored: open all the time, read anew when it changes on the disk."""

import json
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from ffscope.queries import Tables
from ffscope.study import Study
from ffscope.web.twins.overview import name_of, overview_twin

logger = logging.getLogger(__name__)


class Studied:
    """A study's tables, held in memory as soon as they are there, and answers that cost more than a moment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()
        self._version: tuple[int, ...] = ()
        self._tables: Tables | None = None
        self._kept: dict[str, Any] = {}

    @property
    def tables(self) -> Tables:
        """The tables as they are now. A stage that was done since is seen at the next question."""
        with self._lock:
            version = self._stamp()
            if self._tables is None or version != self._version:
                self._tables = Tables(Study.open(self.folder))
                self._version, self._kept = version, {}
                threading.Thread(target=self._get_ready, args=(self._tables,), daemon=True).start()
            return self._tables

    def kept(self, name: str, make: Callable[[Tables], Any]) -> Any:
        """What was made of these tables before under a name, or is made now."""
        tables, kept = self.tables, self._kept
        if name not in kept:
            kept[name] = make(tables)
        return kept[name]

    def overview(self) -> Any:
        """The first page's twin."""
        return self.kept("overview", lambda tables: overview_twin(tables, self.summary()))

    def summary(self) -> dict[str, Any]:
        """What the report is drawn from; empty where there is none that can be read."""
        with suppress(OSError, ValueError):
            found = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
            return found if isinstance(found, dict) else {}
        return {}

    def about(self, *, model: bool) -> dict[str, Any]:
        """What every page knows of the study."""
        study = self.tables.study
        return {
            "name": name_of(self.tables),
            "layers": len(study.manifest["model"]["memories"]),
            "memories": study.manifest["model"]["memories"],
            "folder": str(study.folder),
            "top": study.settings["top"],
            "lens": study.settings.get("lens"),
            "stages": [stage for stage in study.manifest["stages"] if study.has(stage)],
            "model": model,
        }

    def _stamp(self) -> tuple[int, ...]:
        """Changes whenever the study does: its manifest is written last at each stage."""
        files = (self.folder / "study.json", self.folder / "summary.json")
        return tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files)

    def _get_ready(self, tables: Tables) -> None:
        """What would make the first answers slow, done before anyone asks."""
        try:
            self.overview()
            tables.hold()
        except Exception:  # questions are answered without it, or say what is wrong
            logger.debug("The study could not be held in memory", exc_info=True)
