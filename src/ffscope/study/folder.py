"""The study folder: its manifest, and writes that leave a file whole or not at all."""

import errno
import fcntl
import json
import os
import platform
import shlex
import shutil
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
_MANIFEST, _LOCK, _UNFINISHED = "study.json", ".lock", ".unfinished"


class Study:
    """One study folder and its manifest."""

    def __init__(self, folder: Path | str, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest = Path(folder), manifest

    @classmethod
    def open(cls, folder: Path | str) -> "Study":
        """A study that is there already."""
        file = Path(folder) / _MANIFEST
        if not file.is_file():
            raise StudyError(f"{folder} holds no study: expected a {_MANIFEST} in it. `ffscope triggers` makes one.")
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
            known = manifest["schema"]
            for section in ("model", "corpus", "settings", "stages") if known == SCHEMA_VERSION else ():
                dict(manifest[section])
        except (ValueError, KeyError, TypeError) as error:
            raise StudyError(
                f"{file} cannot be read as a study's manifest: {error!r}. Make the study again."
            ) from error
        if known != SCHEMA_VERSION:
            raise StudyError(
                f"{folder} was written with schema {known}; this ffscope reads schema {SCHEMA_VERSION}. {_again(manifest)}"
            )
        return cls(folder, manifest)

    @classmethod
    @contextmanager
    def writing(cls, folder: Path | str, model: dict[str, Any]) -> Iterator["Study"]:
        """A model's study to add to: the one that is there, or a new one. No other process writes to it meanwhile."""
        path = Path(folder)
        with _one_sentence(path):
            refuse_foreign(path)
            path.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            for left in path.rglob(f"*{_UNFINISHED}"):
                left.unlink()
            study = cls.open(path) if (path / _MANIFEST).is_file() else cls(path, _empty(model))
            for stage in filter(study.has, study.manifest["stages"]):  # stopped before it cleared away
                shutil.rmtree(path / f".{stage}", ignore_errors=True)
            study.refuse_other_model(model)
            study.manifest["model"] = {**model, **study.manifest["model"]}  # what an older study did not note
            try:
                yield study
            finally:
                if [entry.name for entry in path.iterdir()] == [_LOCK]:  # nothing came of it
                    (path / _LOCK).unlink()
                    path.rmdir()

    @classmethod
    @contextmanager
    def adding(cls, folder: Path | str) -> Iterator["Study"]:
        """A study that is there already, to add to what needs no model. No other process writes to it meanwhile."""
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
        """Whether a stage is finished. Settings hold for a whole study: what was made with others must not be mixed with these."""
        self._must_match("settings", settings)
        return self.has(stage)

    def has(self, stage: str) -> bool:
        """Whether a stage is finished, and its table still there."""
        row = stages().get(stage)
        there = row is None or row.table is None or self.path(row.table.file).is_file()
        return there and self.manifest["stages"].get(stage, {}).get("done", False)

    def need(self, stage: str, settings: dict[str, Any] | None = None) -> None:
        """Raise where a stage that another builds on is not finished, or was done with other settings."""
        if not self.done(stage, settings or {}):
            why = self.manifest["stages"].get(stage, {}).get("why")
            said = f": {why}" if why else f" yet. Run `ffscope {stage}` on it first, to its end."
            raise StudyError(f"{self.folder} has no {stage}{said}")

    def finish(
        self, stage: str, settings: dict[str, Any], *, seconds: float, tokens: int | None = None, **account: Any
    ) -> None:
        """Note a stage as done, with what else is to be said of it. This is the last thing that a stage writes."""
        self.settings.update(settings)
        per_second = None if tokens is None else round(tokens / seconds) if seconds else 0
        done = {"done": True, "seconds": round(seconds, 3), "tokens_per_second": per_second}
        self.manifest["stages"].pop(stage, None)  # the last that was done stands last
        self.manifest["stages"][stage] = {**done, **account}
        self._write_manifest()

    def skip(self, stage: str, why: str) -> None:
        """Note that a stage cannot be done on this study."""
        self.manifest["stages"][stage] = {"done": False, "why": why}
        self._write_manifest()

    def _write_manifest(self) -> None:
        # A report may be made on a machine without torch.
        self.manifest["versions"] = {**self.manifest.get("versions", {}), **_versions()}
        with self.replacing(_MANIFEST) as file:
            content = json.dumps(self.manifest, indent=2, ensure_ascii=False) + "\n"
            # A file's name may hold bytes that are not UTF-8. Written with a backslash, they are JSON still.
            file.write_text(content, encoding="utf-8", errors="backslashreplace")

    def make_folder(self, name: str) -> None:
        """A folder of the study's own, if it is not there."""
        with _one_sentence(self.folder):
            self.path(name).mkdir(exist_ok=True)

    @contextmanager
    def replacing(self, name: str) -> Iterator[Path]:
        """A temporary path to write to; the file takes its name when it is whole and on the disk."""
        unfinished = self.path(f"{name}{_UNFINISHED}")
        try:
            with _one_sentence(self.folder):
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
        """Raise where a model is not the one that was studied; from where it was loaded does not matter."""
        self._must_match("model", {name: value for name, value in model.items() if name != "source"})

    def _must_match(self, section: str, wanted: dict[str, Any]) -> None:
        held = self.manifest[section]
        for name, value in json.loads(json.dumps(wanted)).items():
            if name in held and held[name] != value:
                raise StudyError(
                    f"{self.folder} holds a study with {section} {name} = {_short(held[name])}; this run has "
                    f"{_short(value)}. Nothing was changed: choose another --out, or run with what it was made with."
                )


def _again(manifest: dict[str, Any]) -> str:
    """How a study that cannot be read is made anew, as far as what is left of it tells."""
    model, settings = manifest.get("model"), manifest.get("settings")
    source = model.get("source") if isinstance(model, dict) else None
    corpus = settings.get("corpus") if isinstance(settings, dict) else None
    words = (str(source or "MODEL"), "--corpus", str(corpus or "TEXT"), "--out", "NEW_FOLDER")
    return f"Make it again with: ffscope run {shlex.join(words)}"


def _empty(model: dict[str, Any]) -> dict[str, Any]:
    return {"schema": SCHEMA_VERSION, "model": model, "corpus": {}, "settings": {}, "stages": {}}


def refuse_foreign(folder: Path) -> None:
    """Raise where a folder holds something, and it is no study."""
    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file. Name a folder for the study, new or a study's own.")
    if not folder.is_dir() or (folder / _MANIFEST).is_file():
        return
    ours = {*SCHEMAS, _LOCK}
    foreign = sorted(
        entry.name for entry in folder.iterdir() if entry.name not in ours and not entry.name.endswith(_UNFINISHED)
    )
    if foreign:
        raise StudyError(
            f"{folder} is not empty and holds no study ({', '.join(foreign[:3])} …). Nothing was written: choose another --out."
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with _one_sentence(folder):
        opened = (folder / _LOCK).open("a")
    with opened as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StudyError(f"Another ffscope is writing to {folder}. Wait for it, or choose another --out.") from None
        except OSError:  # a file system without locks
            pass
        yield


@contextmanager
def _one_sentence(folder: Path) -> Iterator[None]:
    """What the disk has against writing, said once."""
    try:
        yield
    except OSError as error:
        room = "The disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
        raise StudyError(
            f"{folder} cannot be written: {room}. What was finished, and the last checkpoint, are kept: mend it and run the "
            "same command again."
        ) from error


def _short(value: Any) -> str:
    shown = json.dumps(value, ensure_ascii=False)
    return shown if len(shown) <= 80 else f"{shown[:79]}…"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("ffscope", "torch", "transformers", "tokenizers", "sentencex", "pyarrow"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a checkout that is not installed
            continue
    return found
