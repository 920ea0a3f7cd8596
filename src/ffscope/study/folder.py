"""The study folder: its manifest (study.json), its lock, and atomic writes."""

import errno
import fcntl
import json
import os
import platform
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ffscope.errors import StudyError
from ffscope.memory_name import Memory
from ffscope.stages.registry import stages
from ffscope.study.schemas import SCHEMAS

SCHEMA_VERSION = 1
LOCK, PROGRESS = ".lock", ".progress.json"
_MANIFEST, _UNFINISHED = "study.json", ".unfinished"
_LOCK_TRIES, _LOCK_PAUSE = 5, 0.05  # another process may look for a moment whether the study is locked


class Study:
    """One study folder and its manifest."""

    def __init__(self, folder: Path | str, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = Path(folder), manifest

    @classmethod
    def open(cls, folder: Path | str) -> "Study":
        """An existing study."""
        file = Path(folder) / _MANIFEST
        if not file.is_file():
            raise StudyError(f"{folder} is not a study: it has no {_MANIFEST}. Create one with `ffscope run`.")
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
            schema = manifest["schema"]
            for section in ("model", "corpus", "settings", "stages") if schema == SCHEMA_VERSION else ():
                dict(manifest[section])
        except (ValueError, KeyError, TypeError) as error:
            raise StudyError(
                f"{file} cannot be read as the manifest of a study: {error!r}. Run the study again in a new folder."
            ) from error
        if schema != SCHEMA_VERSION:
            raise StudyError(
                f"{folder} was written with schema {schema}; this ffscope reads schema {SCHEMA_VERSION}. {_rerun_advice(manifest)}"
            )
        return cls(folder, manifest)

    @classmethod
    @contextmanager
    def writing(cls, folder: Path | str, model: dict[str, Any]) -> Iterator["Study"]:
        """A model's study, existing or new, locked for writing."""
        path = Path(folder)
        with _as_study_error(path):
            check_folder_is_free(path)
            path.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            _remove_unfinished(path)
            study = cls.open(path) if (path / _MANIFEST).is_file() else cls(path, _empty(model))
            for stage in filter(study.has, study.manifest["stages"]):  # it was stopped before it removed its parts
                shutil.rmtree(path / f".{stage}", ignore_errors=True)
            study.refuse_other_model(model)
            study.manifest["model"] = {**model, **study.manifest["model"]}  # adds entries that older studies lack
            try:
                yield study
            finally:
                if {entry.name for entry in path.iterdir()} <= {LOCK, PROGRESS}:  # no work to keep
                    shutil.rmtree(path)

    @classmethod
    @contextmanager
    def adding(cls, folder: Path | str) -> Iterator["Study"]:
        """An existing study, locked for writing, for work that needs no model."""
        cls.open(folder)
        with _locked(Path(folder)):
            yield cls.open(folder)

    @property
    def settings(self) -> dict[str, Any]:
        return self.manifest["settings"]

    def path(self, name: str) -> Path:
        return self.folder / name

    def searched(self) -> tuple[int, Memory]:
        """How many memories were searched, and the first of them."""
        with pq.ParquetFile(self.path("memories.parquet")) as table:
            first = next(table.iter_batches(1, columns=["layer", "memory"])).to_pylist()[0]
            return table.metadata.num_rows, Memory(**first)

    def done(self, stage: str, settings: dict[str, Any]) -> bool:
        """Whether a stage is finished. Raises if the study has other settings: results of different settings must not be mixed."""
        self._refuse_other_settings(settings)
        return self.has(stage)

    def has(self, stage: str) -> bool:
        """Whether a stage is finished and all its tables still exist."""
        if not self.manifest["stages"].get(stage, {}).get("done", False):
            return False
        row = stages().get(stage)
        return row is None or all(table.optional or self.path(table.file).is_file() for table in row.tables)

    def need(self, stage: str, settings: dict[str, Any] | None = None) -> None:
        """Raise if a stage that another one needs is not finished, or was run with other settings."""
        if not self.done(stage, settings or {}):
            why = self.manifest["stages"].get(stage, {}).get("why")
            advice = f": {why}" if why else f" yet. Run `ffscope {stage}` on it first."
            raise StudyError(f"{self.folder} has no {stage}{advice}")

    def finish(
        self, stage: str, settings: dict[str, Any], *, seconds: float, tokens: int | None = None, **entries: Any
    ) -> None:
        """Mark a stage as done in study.json, with further entries. A stage calls this last."""
        self.settings.update(settings)
        per_second = None if tokens is None else round(tokens / seconds) if seconds else 0
        done = {"done": True, "seconds": round(seconds, 3), "tokens_per_second": per_second}
        self.manifest["stages"].pop(stage, None)  # keeps the stages in the order they were finished
        self.manifest["stages"][stage] = {**done, **entries}
        self._write_manifest()

    def amend(self, stage: str, **entries: Any) -> None:
        """Change entries of a finished stage in study.json that its tables do not depend on."""
        self.manifest["stages"][stage].update(entries)
        self._write_manifest()

    def skip(self, stage: str, why: str) -> None:
        """Note in study.json why a stage cannot be run on this study."""
        self.manifest["stages"][stage] = {"done": False, "why": why}
        self._write_manifest()

    def _write_manifest(self) -> None:
        # Keep the earlier versions: the report may be made on a machine without torch.
        self.manifest["versions"] = {**self.manifest.get("versions", {}), **versions()}
        with self.replacing(_MANIFEST) as file:
            content = json.dumps(self.manifest, indent=2, ensure_ascii=False) + "\n"
            # A file name may have bytes that are not UTF-8; backslash escapes keep the JSON valid.
            file.write_text(content, encoding="utf-8", errors="backslashreplace")

    def make_folder(self, name: str) -> None:
        """Create a folder in the study unless it exists."""
        with _as_study_error(self.folder):
            self.path(name).mkdir(exist_ok=True)

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """A temporary path to write to; on success it is flushed to disk and renamed to `name`."""
        unfinished = self.path(f"{name}{_UNFINISHED}")
        try:
            with _as_study_error(self.folder):
                yield unfinished
                with unfinished.open("rb") as file:
                    os.fsync(file.fileno())
                unfinished.replace(self.path(name))
        finally:
            unfinished.unlink(missing_ok=True)

    @contextmanager
    def table(self, name: str) -> Iterator[pq.ParquetWriter]:
        """Write one of the study's tables, row group by row group."""
        with self.replacing(name) as path, pq.ParquetWriter(path, SCHEMAS[name], compression="zstd") as writer:
            yield writer

    def refuse_other_model(self, model: dict[str, Any]) -> None:
        """Raise if a model is not the one that was studied; its location may differ."""
        stored, source = self.manifest["model"], model.get("source") or "a model without a source"
        for name, value in _differences(stored, {**model, "source": stored.get("source")}):
            raise StudyError(
                f"{self.folder} is a study of another model: of {stored.get('source')}, with {name} {_short(stored[name])}; this "
                f"is {source}, with {_short(value)}. Nothing was changed. Name the model that was studied, or another study."
            )

    def _refuse_other_settings(self, settings: dict[str, Any]) -> None:
        for name, value in _differences(self.settings, settings):
            raise StudyError(
                f"{self.folder} is a study with {name} = {_short(self.settings[name])}; this run has {_short(value)}. Nothing was "
                "changed. Use the study's value, or make another study in a new folder."
            )


def _differences(stored: dict[str, Any], wanted: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What is wanted otherwise than it is stored."""
    for name, value in json.loads(json.dumps(wanted)).items():
        if name in stored and stored[name] != value:
            yield name, value


def _rerun_advice(manifest: dict[str, Any]) -> str:
    """The command that makes an unreadable study again, as far as its manifest has the arguments."""
    model, settings = manifest.get("model"), manifest.get("settings")
    source = model.get("source") if isinstance(model, dict) else None
    corpus = settings.get("corpus") if isinstance(settings, dict) else None
    words = (str(source or "MODEL"), "--corpus", str(corpus or "TEXT"), "--out", "NEW_FOLDER")
    return f"Make it again with: ffscope run {shlex.join(words)}"


def _empty(model: dict[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA_VERSION, "model": model, "corpus": {}, "settings": {}, "stages": {}}


def _remove_unfinished(folder: Path) -> None:
    """Remove what a stopped run was writing: files of ours, and folders in which a worker wrote a file of its shard."""
    for unfinished in list(folder.rglob(f"*{_UNFINISHED}")):
        if unfinished.is_dir():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)


def check_folder_is_free(folder: Path) -> None:
    """Raise if a folder is not empty and not a study."""
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file. Expected a new folder, or the folder of a study.")
    if not folder.is_dir() or (folder / _MANIFEST).is_file():
        return
    ours = {*SCHEMAS, LOCK, PROGRESS, *(f".{stage}" for stage in stages()), "triggers.checkpoint", "triggers.shards"}
    other_files = sorted(
        entry.name for entry in folder.iterdir() if entry.name not in ours and not entry.name.endswith(_UNFINISHED)
    )
    if other_files:
        raise StudyError(
            f"{folder} is not empty and not a study ({', '.join(other_files[:3])} …). Nothing was written: choose another --out."
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with _as_study_error(folder):
        file = (folder / LOCK).open("a")
    with file as lock:
        for attempt in range(_LOCK_TRIES):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt == _LOCK_TRIES - 1:
                    raise StudyError(
                        f"Another ffscope process is writing to {folder}. Wait for it, or choose another --out."
                    ) from None
                time.sleep(_LOCK_PAUSE)
            except OSError:  # a file system without locks
                break
        yield


@contextmanager
def _as_study_error(folder: Path) -> Iterator[None]:
    """Raise an OSError as a StudyError."""
    try:
        yield
    except OSError as error:
        reason = "The disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
        raise StudyError(
            f"{folder} cannot be written: {reason}. Finished stages and the last checkpoint are kept. Fix this, then run the same "
            "command to resume."
        ) from error


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"


def versions() -> dict[str, str]:
    """The versions of Python and of the libraries that results depend on."""
    versions = {"python": platform.python_version()}
    for name in ("ffscope", "torch", "transformers", "tokenizers", "sentencex", "pyarrow"):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            continue
    return versions
