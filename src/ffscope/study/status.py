"""What is being done to a study right now, or was when it was interrupted: noted in its folder for other processes to read."""

import fcntl
import json
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ffscope.errors import first_line
from ffscope.progress import Progress, ProgressCallback
from ffscope.study.folder import LOCK, PROGRESS, Study

_EVERY = 1.0  # seconds between notes


@dataclass(frozen=True)
class Status:
    """The state of a study. `progress` has the stages that were at work last; `ended` says why they stopped, if they did."""

    running: bool
    manifest: dict[str, Any]  # study.json; empty before the first stage is done
    progress: list[Progress]
    seconds: float | None  # since the last report of progress
    process: int | None
    host: str | None
    ended: str | None


@contextmanager
def noting(study: Study, progress: ProgressCallback) -> Iterator[ProgressCallback]:
    """A callback that also notes the progress in the study, where `read_status` finds it. The note goes when all is done."""
    note = _Note(study.path(PROGRESS))

    def report(latest: Progress) -> None:
        note.add(latest)
        progress(latest)

    try:
        yield report
    except BaseException as error:
        note.end("interrupted" if isinstance(error, KeyboardInterrupt) else first_line(error))
        raise
    note.delete()


class _Note:
    """The file with the latest progress."""

    def __init__(self, path: Path) -> None:
        self._path, self._due = path, 0.0
        self._latest: dict[str, Progress] = {}

    def add(self, progress: Progress) -> None:
        for stage in [stage for stage, other in self._latest.items() if other.done == other.total]:
            del self._latest[stage]
        self._latest[progress.stage] = progress
        if time.monotonic() >= self._due or progress.done == progress.total:
            self._write()

    def end(self, reason: str) -> None:
        if self._latest:
            self._write(reason)

    def delete(self) -> None:
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write(self, ended: str | None = None) -> None:
        self._due = time.monotonic() + _EVERY
        content = {
            "process": os.getpid(),
            "host": platform.node(),
            "time": time.time(),
            "progress": [asdict(progress) for progress in self._latest.values()],
            "ended": ended,
        }
        unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        with suppress(OSError):  # a full disk: the stage itself reports it
            unfinished.write_text(json.dumps(content), encoding="utf-8")
            unfinished.replace(self._path)


def read_status(folder: Path | str) -> Status:
    """The state of a study, finished or not. Nothing is changed, and a process that is writing to it is not disturbed."""
    path = Path(folder)
    running = is_being_written(path)
    note = _read(path / PROGRESS)
    manifest = {} if not (path / "study.json").is_file() and (running or note) else Study.open(path).manifest
    return Status(
        running,
        manifest,
        [Progress(**progress) for progress in note.get("progress", [])],
        time.time() - note["time"] if note else None,
        note.get("process"),
        note.get("host"),
        note.get("ended"),
    )


def is_being_written(folder: Path) -> bool:
    """Whether a process holds the study's lock."""
    try:
        with (folder / LOCK).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there is none, or the file system has no locks
        return False
    return False


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
