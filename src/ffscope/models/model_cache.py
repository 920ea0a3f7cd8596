"""The user's cache of converted models: one folder per model, which appears only when complete."""

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffscope.errors import SourceError

logger = logging.getLogger(__name__)

_NOTES = "ffscope.json"  # in every folder of the cache; folders without it are neither listed nor removed
_UNFINISHED = ".ffscope-unfinished"
_SETTLED = 2.0  # seconds after which any file system shows a change to a file in its times


@dataclass(frozen=True)
class CachedModel:
    """One converted model."""

    name: str
    path: Path
    source: str  # the name of the file that it was converted from
    size: int  # in bytes
    last_use: float  # in seconds since 1970


def cache_folder() -> Path:
    """The folder of converted models: $FFSCOPE_CACHE, else in the user's cache."""
    if "FFSCOPE_CACHE" in os.environ:
        return Path(os.environ["FFSCOPE_CACHE"]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ffscope"


def cached_models() -> list[CachedModel]:
    """All converted models, the most recently used first."""
    entries = [_entry(path) for path in _models().glob("[!.]*")]
    return sorted((entry for entry in entries if entry), key=lambda entry: entry.last_use, reverse=True)


def select(names: Sequence[str]) -> list[CachedModel]:
    """The cached models with these names, or converted from files with these names; without names, all."""
    entries = cached_models()
    for name in names:
        if not any(name in (entry.name, entry.source) for entry in entries):
            named = ", ".join(entry.name for entry in entries) or "nothing"
            hint = " To remove models, use --clear." if name == "clear" else ""
            raise SourceError(f"The cache {_models()} has no model {name!r}. It has: {named}.{hint}")
    return [entry for entry in entries if not names or {entry.name, entry.source} & set(names)]


def clear(names: Sequence[str]) -> list[CachedModel]:
    """Remove the cached models that `select` returns, and what interrupted conversions left behind."""
    entries = select(names)
    for entry in entries:
        remove(entry.name)
    sweep()
    if not names:
        shutil.rmtree(cache_folder() / "hashes", ignore_errors=True)
    return entries


def sweep(own: str | None = None) -> None:
    """Remove what interrupted conversions left behind. The caller has already locked the model `own`."""
    for folder in _models().glob(f".*{_UNFINISHED}"):
        name = folder.name[1:].split(".")[0]
        with nullcontext(True) if name == own else locked(name, wait=False) as is_ours:
            if is_ours:
                shutil.rmtree(folder, ignore_errors=True)


def remove(name: str) -> None:
    """Remove one cached model. It disappears in one step, so that no other process finds half of it."""
    folder = _models() / name
    try:
        removed = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=_UNFINISHED, dir=_models()))
        try:
            os.rename(folder, removed / name)
        finally:
            shutil.rmtree(removed, ignore_errors=True)
    except OSError as error:
        if folder.is_dir():  # otherwise another process has removed it
            raise SourceError(f"{folder} cannot be removed: {error.strerror or error}.") from error


def find(name: str) -> Path | None:
    """The folder of a cached model, which is marked as used now; None if it is not cached."""
    folder = _models() / name
    if not _notes(folder):
        return None
    with suppress(OSError):  # for example in another user's cache
        os.utime(folder / _NOTES)
    return folder


def store(name: str, notes: dict[str, Any], write: Callable[[Path], None]) -> None:
    """Add a model, written by `write` into a folder that does not exist yet. If another process was faster, its copy stays."""
    models = _models()
    models.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{name}.", suffix=_UNFINISHED, dir=models))
    try:
        write(unfinished / name)
        (unfinished / name / _NOTES).write_text(json.dumps(notes, indent=2) + "\n", encoding="utf-8")
        try:
            os.rename(unfinished / name, models / name)
        except OSError:
            if not _notes(models / name):
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


@contextmanager
def locked(name: str, *, wait: bool = True) -> Iterator[bool]:
    """Let one process at a time convert a model. Yields whether this one has the lock; a killed process loses its lock."""
    try:
        folder = cache_folder() / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / name).open("a")
    except OSError:  # a cache that is not writable needs no lock
        yield False
        return
    with file:
        yield _lock(file, name, wait=wait)


def _lock(file: Any, name: str, *, wait: bool) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        if not wait:
            return False
        logger.info("Waiting for another process, which is converting %s.", name)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        return False
    return True


def file_digest(file: Path) -> str:
    """The SHA-256 of a file's content. It is computed again only if the file has changed.

    A file counts as unchanged if its path, size, inode and times are the same. A program can set the time of the last change to the
    content, but not that of the last change to the inode, and a file that changed just now may change again within one tick.
    """
    stamp = file_stamp(file)
    notes = cache_folder() / "hashes" / f"{hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        saved = json.loads(notes.read_text(encoding="utf-8"))
        if saved["stamp"] == stamp and re.fullmatch("[0-9a-f]{64}", saved["sha256"]):
            return saved["sha256"]
    start = time.time()
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    settled = start - max(stamp[-2:]) / 1e9 > _SETTLED
    if settled and file_stamp(file) == stamp:
        with suppress(OSError):
            _replace(notes, json.dumps({"stamp": stamp, "sha256": digest}))
    return digest


def file_stamp(file: Path) -> list[int]:
    """Properties of a file of which at least one changes with its content."""
    status = file.stat()
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _replace(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=".", delete=False, encoding="utf-8") as unfinished:
        unfinished.write(content)
    os.replace(unfinished.name, file)


def _models() -> Path:
    return cache_folder() / "models"


def _notes(folder: Path) -> dict[str, Any] | None:
    """The notes of a cached model; None if there are none."""
    try:
        notes = json.loads((folder / _NOTES).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return notes if isinstance(notes, dict) else None


def _entry(folder: Path) -> CachedModel | None:
    notes = _notes(folder)
    if notes is None:
        return None
    try:
        size = sum(file.stat().st_size for file in folder.iterdir())
        last_use = (folder / _NOTES).stat().st_mtime
    except FileNotFoundError:  # another process is removing it
        return None
    return CachedModel(folder.name, folder, str(notes.get("source", "")), size, last_use)
