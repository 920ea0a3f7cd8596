"""Files that a stage leaves while it runs, so that a stage that was stopped resumes where it was."""

import json
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ffscope.study.folder import Study

_NOTE = "begun.json"


class ResumableFolder:
    """The folder `.NAME` of a study, with a note of the settings that its files are made with.

    The files of a stage that was begun with other settings are dropped.
    """

    def __init__(self, study: Study, name: str, settings: Any) -> None:
        self.study, self._folder = study, f".{name}"
        wanted = json.dumps(settings, sort_keys=True)
        note = self.path(_NOTE)
        if not note.is_file() or note.read_text(encoding="utf-8") != wanted:
            self.drop()
            study.make_folder(self._folder)
            with self.writing(_NOTE) as path:
                path.write_text(wanted, encoding="utf-8")

    def path(self, name: str) -> Path:
        return self.study.path(f"{self._folder}/{name}")

    def missing(self, names: Iterable[str]) -> list[str]:
        """Which of these files are still to be made."""
        return [name for name in names if not self.path(name).is_file()]

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """A temporary path to write to; the file takes its name when it is whole."""
        return self.study.replacing(f"{self._folder}/{name}")

    def drop(self) -> None:
        """Remove the folder, when the stage is noted as done."""
        shutil.rmtree(self.study.path(self._folder), ignore_errors=True)
