"""Files that the driver and all workers can read and write: a folder, or any URL that fsspec knows."""

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from ffscope.errors import EngineError, first_line

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
_TRIES, _CHECK_TRIES = 6, 3
_UNFINISHED = ".unfinished"  # the end of the names of files that are not complete
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
        self._again(
            lambda: self._place(self._path(name), partial(self._files.pipe_file, value=content)), f"write {name}"
        )

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """A path on this machine. What is written there appears as the file at the end of the block."""
        target = self._path(name)
        if self._is_local:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=Path(target).parent if self._is_local else None, suffix=_UNFINISHED) as folder:
            path = Path(folder) / "file"
            yield path
            if self._is_local:
                path.replace(target)
            else:
                put = partial(self._files.put_file, str(path))
                self._again(lambda: self._place(target, put), f"write {name}")

    @contextmanager
    def reading(self, name: str) -> Iterator[Path]:
        """A path on this machine that has the content of a file, until the end of the block."""
        if self._is_local:
            yield Path(self._path(name))
            return
        with TemporaryDirectory(suffix=_UNFINISHED) as folder:
            path = Path(folder) / "file"
            self._again(lambda: self._files.get_file(self._path(name), str(path)), f"read {name}")
            yield path

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

    @property
    def _protocols(self) -> set[str]:
        protocols = self._files.protocol
        return {protocols} if isinstance(protocols, str) else set(protocols)

    @property
    def _is_local(self) -> bool:
        return "file" in self._protocols

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _place(self, path: str, put: Callable[[str], object]) -> None:
        """Make a file with `put`, which writes it to the path that it is given."""
        if _OBJECT_STORES & self._protocols:
            put(path)
            return
        unfinished = f"{path}.{uuid.uuid4().hex}{_UNFINISHED}"
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        try:
            put(unfinished)
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
        return {name for name in names if not name.endswith(_UNFINISHED)}

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
        put = partial(storage._files.pipe_file, value=content)
        _retrying(lambda: storage._place(storage._path(name), put), _CHECK_TRIES)
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
