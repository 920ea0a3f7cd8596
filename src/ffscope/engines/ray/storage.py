"""Files that the driver and all workers can read and write: a folder, or any URL that fsspec knows."""

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from ffscope.errors import EngineError, first_line

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_TRIES, _CHECK_TRIES = 6, 3
_FIRST_PAUSE = 0.2  # seconds; each further one is twice as long
# Where a file appears only when it is complete, and renaming would copy it.
_OBJECT_STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oci", "oss", "memory", "r2"}


class Storage:
    """A folder of files. Each is complete or missing. What fails is tried again, since networks fail now and then."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") or "/"
        self._files, self._root = _file_system(self.url)

    def __reduce__(self) -> tuple[type["Storage"], tuple[str]]:
        return Storage, (self.url,)

    def folder(self, name: str) -> "Storage":
        """A folder in it."""
        return Storage(f"{self.url}/{name}")

    def read(self, name: str) -> bytes:
        """The content of a file."""
        return self._again(lambda: self._files.cat_file(self._path(name)), f"read {name}")

    def write(self, name: str, content: bytes) -> None:
        """Write a file; it appears when it is complete."""
        self._again(lambda: self._write(self._path(name), content), f"write {name}")

    def has(self, name: str) -> bool:
        """Whether a file exists."""
        return self._again(lambda: self._files.exists(self._path(name)), f"look for {name}")

    def names(self, folder: str) -> set[str]:
        """The names of the complete files in a folder, which need not exist."""
        return self._again(lambda: self._names(self._path(folder)), f"list {folder}")

    def delete(self, *names: str) -> None:
        """Delete files; those that do not exist are ignored. One that cannot be deleted does no harm, and stays."""
        for name in names:
            with suppress(Exception):  # the libraries behind fsspec raise errors of their own
                self._files.rm_file(self._path(name))

    def drop(self) -> None:
        """Delete the folder with everything in it, if that is possible."""
        with suppress(Exception):
            self._files.rm(self._root, recursive=True)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _write(self, path: str, content: bytes) -> None:
        protocols = self._files.protocol
        if _OBJECT_STORES & {protocols, *(protocols if isinstance(protocols, tuple) else ())}:
            self._files.pipe_file(path, content)
            return
        unfinished = f"{path}.{uuid.uuid4().hex}.unfinished"
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            self._files.pipe_file(unfinished, content)
            self._files.mv(unfinished, path)
        except BaseException:
            with suppress(OSError):
                self._files.rm_file(unfinished)
            raise

    def _names(self, folder: str) -> set[str]:
        self._files.invalidate_cache()
        try:
            entries = self._files.ls(folder, detail=False)
        except FileNotFoundError:
            return set()
        names = {str(entry).rstrip("/").rpartition("/")[2] for entry in entries}
        return {name for name in names if not name.endswith(".unfinished")}

    def _again(self, action: Callable[[], Result], what: str) -> Result:
        try:
            return _retrying(action, _TRIES)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise OSError(f"The storage {self.url} failed {_TRIES} times to {what}: {first_line(error)}") from error


def _retrying(action: Callable[[], Result], tries: int) -> Result:
    """The result of an action that may fail now and then, but not because a file is missing."""
    for attempt in range(tries):
        try:
            return action()
        except FileNotFoundError:
            raise
        except Exception as error:  # the libraries behind fsspec raise errors of their own
            if attempt == tries - 1:
                raise
            logger.debug("The storage failed: %s", error)
            time.sleep(_FIRST_PAUSE * 2**attempt)
    raise AssertionError("unreachable")


def check_storage(url: str) -> None:
    """Raise if storage cannot be written and read from here."""
    storage, name, content = Storage(url), f"check-{uuid.uuid4().hex}", b"ffscope"
    try:
        _retrying(lambda: storage._write(storage._path(name), content), _CHECK_TRIES)
        returned = _retrying(lambda: storage._files.cat_file(storage._path(name)), _CHECK_TRIES)
    except Exception as error:  # the libraries behind fsspec raise errors of their own
        raise EngineError(
            f"The storage {url} cannot be used: {first_line(error)}. Expected a folder or URL that can be written, such as "
            "/mnt/shared/ffscope or s3://bucket/folder."
        ) from error
    finally:
        storage.delete(name)
    if returned != content:
        raise EngineError(f"The storage {url} returned other bytes than were written to it.")


def _file_system(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        files, root = fsspec.core.url_to_fs(str(Path(url).resolve()) if "://" not in url else url)
    except (ImportError, ValueError) as error:
        raise EngineError(
            f"The storage {url} cannot be used: {first_line(error)}. Expected a folder, or a URL whose protocol fsspec knows; "
            "s3:// needs the package s3fs, gs:// gcsfs, on all machines."
        ) from error
    return files, root.rstrip("/")
