"""GGUF files are converted once: the cache, and what can go wrong with it."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from typer.testing import CliRunner

from ffscope import SourceError, load
from ffscope.cli import app
from ffscope.models import gguf_cache, model_cache, sources
from ffscope.models.fingerprint import manifest_entry
from tiny_gguf import write_gguf


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FFSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.Q8.gguf")


@pytest.fixture
def file(original, tmp_path):
    """A GGUF file that was last changed an hour ago."""
    shutil.copy(original, tmp_path / original.name)
    _age(tmp_path / original.name, 3600)
    return tmp_path / original.name


@pytest.fixture
def conversions(monkeypatch):
    """The names of the GGUF files that are converted."""
    names: list[str] = []
    read = sources._model

    def counted(folder, kind, arguments):
        if "gguf_file" in arguments:
            names.append(arguments["gguf_file"])
        return read(folder, kind, arguments)

    monkeypatch.setattr(sources, "_model", counted)
    return names


def _age(file: Path, seconds: float) -> None:
    os.utime(file, (time.time() - seconds,) * 2)


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "models").iterdir()) if (cache / "models").is_dir() else []


def direct(file: Path, kind: torch.dtype):
    """What transformers reads from the file itself."""
    arguments = {"gguf_file": file.name, "trust_remote_code": False}
    model = sources._model(str(file.parent), kind, arguments)
    return model, sources._tokenizer(str(file.parent), arguments)


@pytest.mark.parametrize("dtype", ["auto", "float64"])
def test_cached_and_uncached_are_the_same_model(cache, file, conversions, dtype):
    from ffscope.models.fingerprint import fingerprint

    first, second = load(file, dtype=dtype), load(file, dtype=dtype)
    assert conversions == [file.name]
    assert manifest_entry(first) == manifest_entry(second)
    assert manifest_entry(second)["source"] == str(file)
    plain, tokenizer = direct(file, torch.float32 if dtype == "auto" else torch.float64)
    assert fingerprint(plain) == manifest_entry(second)["fingerprint"]
    text = "the Cat, sat. the"
    assert tokenizer(text)["input_ids"] == second.tokenizer(text)["input_ids"]
    assert tokenizer.special_tokens_map == second.tokenizer.special_tokens_map
    ids = torch.tensor([[1, 5, 9, 12]])
    with torch.no_grad():
        assert torch.equal(plain(ids).logits, second.model(ids).logits)


def test_the_content_counts_not_the_name(cache, file, conversions, tmp_path):
    load(file)
    moved = tmp_path / "elsewhere" / "tiny.Q8.gguf"
    moved.parent.mkdir()
    shutil.move(file, moved)
    load(moved)
    assert conversions == [file.name]
    write_gguf(moved, seed=1)  # another model under the same name
    load(moved)
    assert len(conversions) == 2
    assert len(entries(cache)) == 2


def test_a_file_of_the_same_size_and_time_is_hashed_again(cache, file, tmp_path):
    digest = model_cache.file_digest(file)
    status = file.stat()
    other = write_gguf(tmp_path / "other.gguf", seed=1)
    assert other.stat().st_size == status.st_size
    with file.open("r+b") as stream:  # in place: the same inode
        stream.write(other.read_bytes())
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert model_cache.file_digest(file) != digest


def test_an_unchanged_file_is_hashed_once(cache, file, monkeypatch):
    monkeypatch.setattr(model_cache, "_SETTLED", -1.0)  # the inode changed when the file was copied here, just now
    digest = model_cache.file_digest(file)
    monkeypatch.setattr(model_cache.hashlib, "file_digest", None)
    assert model_cache.file_digest(file) == digest


def test_a_file_that_changed_just_now_is_hashed_again(cache, file, monkeypatch):
    model_cache.file_digest(file)
    assert not (cache / "hashes").exists()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"stamp": 1}', "null"])
def test_a_damaged_note_of_a_digest_is_not_used(cache, file, monkeypatch, content):
    monkeypatch.setattr(model_cache, "_SETTLED", -1.0)
    digest = model_cache.file_digest(file)
    (note,) = (cache / "hashes").iterdir()
    note.write_text(content)
    assert model_cache.file_digest(file) == digest


def test_another_version_converts_again(cache, file, conversions, monkeypatch):
    load(file)
    monkeypatch.setattr(gguf_cache, "version", lambda name: "99.0")
    load(file)
    assert len(conversions) == 2
    monkeypatch.setattr(gguf_cache, "_LAYOUT", 2)
    load(file)
    assert len(conversions) == 3


def test_a_killed_conversion_leaves_nothing_that_is_used(cache, file, conversions, tmp_path):
    code = f"""
import os, signal, sys
from ffscope.models import gguf_cache
save = gguf_cache.save_model
def killed(model, tokenizer, folder):
    save(model, tokenizer, folder)
    os.kill(os.getpid(), signal.SIGKILL)
gguf_cache.save_model = killed
from ffscope import load
load({str(file)!r})
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert result.returncode == -9, result.stderr
    assert [path.name.endswith(".ffscope-unfinished") for path in entries(cache)] == [True]
    assert model_cache.cached_models() == []
    load(file)
    assert conversions == [file.name]
    (entry,) = entries(cache)  # what the killed one left is gone
    assert not entry.name.startswith(".")


@pytest.mark.ray
def test_two_at_once_convert_once(cache, file):
    code = f"""
import logging
logging.basicConfig(level=logging.INFO)
from ffscope.models.sources import read_model
read_model({str(file)!r}, device="cpu", dtype="float32")
"""
    command = [sys.executable, "-c", code]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    logs = [process.communicate(timeout=200)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], logs
    assert "".join(logs).count("Converting tiny.Q8.gguf") == 1
    assert len(entries(cache)) == 1


def test_without_file_locks_the_first_to_finish_wins(cache, file, monkeypatch, conversions):
    def without_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(model_cache.fcntl, "flock", without_locks)
    store = model_cache.store

    def overtaken(name, notes, write):
        store(name, notes, write)
        store(name, notes, write)

    monkeypatch.setattr(model_cache, "store", overtaken)
    load(file)
    assert len(entries(cache)) == 1


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"),
        NotImplementedError("this model cannot be saved"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_without_disk_space_it_loads_and_says_so(cache, file, monkeypatch, caplog, error, dtype):
    whole = manifest_entry(load(file, dtype=dtype))
    model_cache.clear([])

    def full(model, tokenizer, folder):
        folder.mkdir()
        (folder / "half").touch()
        raise error

    monkeypatch.setattr(gguf_cache, "save_model", full)
    assert manifest_entry(load(file, dtype=dtype)) == whole
    assert "tiny.Q8.gguf is not cached in" in caplog.text
    assert "set FFSCOPE_CACHE to a folder that has room" in caplog.text
    assert entries(cache) == []


def test_a_disk_that_is_nearly_full_is_not_filled(cache, file, monkeypatch, caplog):
    monkeypatch.setattr(gguf_cache.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    load(file)
    assert "No space left on device" in caplog.text
    assert entries(cache) == []


def test_a_cache_that_cannot_be_written(tmp_path, file, monkeypatch, caplog):
    (tmp_path / "a file").touch()
    monkeypatch.setenv("FFSCOPE_CACHE", str(tmp_path / "a file" / "cache"))
    assert load(file).layers == 2
    assert "is not cached in" in caplog.text


def test_a_damaged_entry_is_made_again(cache, file, conversions, caplog):
    load(file)
    (entry,) = entries(cache)
    (entry / "model.safetensors").write_bytes(b"half")
    load(file)
    assert "cannot be read" in caplog.text
    assert len(conversions) == 2
    load(file)
    assert len(conversions) == 2


def test_a_file_without_a_readable_tokenizer_is_not_cached(cache, file, monkeypatch, caplog):
    def unreadable(folder, arguments):
        raise ValueError("no such tokenizer")

    monkeypatch.setattr(sources, "_tokenizer", unreadable)
    assert sources.read_model(str(file), device="cpu", dtype="float32").config.num_hidden_layers == 2
    assert "is not cached in" in caplog.text
    with pytest.raises(SourceError, match="no such tokenizer"):
        load(file)


def test_the_command_lists_and_clears(cache, file, tmp_path):
    other = write_gguf(tmp_path / "other.gguf", seed=1)
    load(file)
    load(other)
    (tmp_path / "cache" / "models" / "a model of the user's own").mkdir()
    listed = json.loads(invoke("--json"))
    assert [row["source"] for row in listed["models"]] == ["other.gguf", "tiny.Q8.gguf"]
    assert listed["bytes"] == sum(row["bytes"] for row in listed["models"])
    assert all(Path(row["path"]).is_dir() and row["last_use"].startswith("20") for row in listed["models"])
    text = invoke()
    assert "other.gguf" in text
    assert "last use" in text
    assert "other" not in invoke("tiny.Q8.gguf")
    assert json.loads(invoke("--clear", "other.gguf", "--json"))["removed"]
    assert [entry.source for entry in model_cache.cached_models()] == ["tiny.Q8.gguf"]
    assert "Removed" in invoke("--clear", model_cache.cached_models()[0].name)
    assert "has no converted models" in invoke("--clear")
    assert [path.name for path in entries(cache)] == ["a model of the user's own"]


def test_a_load_counts_as_a_use(cache, file):
    load(file)
    (entry,) = entries(cache)
    _age(entry / "ffscope.json", 1000)
    before = model_cache.cached_models()[0].last_use
    load(file)
    assert model_cache.cached_models()[0].last_use > before + 900


def test_an_unknown_name(cache, file):
    load(file)
    result = CliRunner().invoke(app, ["cache", "nothing"])
    assert "has no model 'nothing'. It has: tiny-Q8-" in str(result.exception)
    result = CliRunner().invoke(app, ["cache", "clear"])
    assert "To remove models, use --clear." in str(result.exception)
    assert len(entries(cache)) == 1


def invoke(*words: str) -> str:
    result = CliRunner().invoke(app, ["cache", *words])
    assert result.exit_code == 0, result.exception
    return result.stdout
