"""Intermediate files of a stage, so that it can resume after being interrupted."""

import json
import shutil
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ffscope.study.folder import Study

_SETTINGS = "begun.json"


class ResumableFolder:
    """The folder `.NAME` of a study, with the settings of its files in begun.json.

    Files that were made with other settings are deleted.
    """

    def __init__(self, study: Study, name: str, settings: Any) -> None:
        self.study, self._folder = study, f".{name}"
        content = json.dumps(settings, sort_keys=True)
        file = self.path(_SETTINGS)
        if not file.is_file() or file.read_text(encoding="utf-8") != content:
            self.drop()
            study.make_folder(self._folder)
            with self.writing(_SETTINGS) as path:
                path.write_text(content, encoding="utf-8")

    def path(self, name: str) -> Path:
        return self.study.path(f"{self._folder}/{name}")

    def missing(self, names: Iterable[str]) -> list[str]:
        """The files that do not exist yet."""
        return [name for name in names if not self.path(name).is_file()]

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """A temporary path to write to; on success it is renamed to `name`."""
        return self.study.replacing(f"{self._folder}/{name}")

    def drop(self) -> None:
        """Remove the folder, after the stage is marked as done."""
        shutil.rmtree(self.study.path(self._folder), ignore_errors=True)
