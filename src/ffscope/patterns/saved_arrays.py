"""Arrays that take long to compute, saved by name so that an interrupted stage resumes."""

from contextlib import suppress

import numpy as np

from ffscope.axes import Array
from ffscope.study.resumable import ResumableFolder


class SavedArrays:
    """Arrays in a folder of the study."""

    def __init__(self, folder: ResumableFolder) -> None:
        self._folder = folder

    def load(self, name: str) -> Array | None:
        """A saved array; None if it is missing or damaged."""
        with suppress(OSError, ValueError, EOFError):
            return np.load(self._folder.path(name))
        return None

    def save(self, name: str, array: Array) -> None:
        """Save an array."""
        with self._folder.writing(name) as path, path.open("wb") as out:
            np.save(out, array)
