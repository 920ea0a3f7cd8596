"""GGUF files: converted once into the user's cache, since reading one takes minutes and reading its conversion seconds."""

import errno
import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from ffscope.errors import SourceError, first_line
from ffscope.models import model_cache
from ffscope.models.saving import save_model
from ffscope.panics import Unreadable, guarded

logger = logging.getLogger(__name__)

Arguments = dict[str, Any]
ReadModel = Callable[[str, torch.dtype | str, Arguments], Any]
ReadTokenizer = Callable[[str, Arguments], Any]

_LAYOUT = 1  # increase it when the content of the cache changes
_CONVERTERS = ("transformers", "tokenizers", "gguf")  # packages that determine what a conversion contains


def read_gguf(
    file: Path, kind: torch.dtype | str, *, read_model: ReadModel, read_tokenizer: ReadTokenizer
) -> tuple[Any, Callable[[], Any]]:
    """The model of a GGUF file in a precision ("auto": float32), and a function that reads its tokenizer."""
    kind = torch.float32 if kind == "auto" else kind  # dequantized weights have no stored precision
    arguments: Arguments = {"gguf_file": file.name, "trust_remote_code": False}
    original = str(file.parent)
    digest = model_cache.file_digest(file)
    name = _entry_name(file, digest)
    cached = partial(_read_cached, name, kind, read_model, read_tokenizer)
    loaded = cached()
    if loaded is not None:
        return loaded
    with model_cache.locked(name) as is_ours:
        if is_ours:
            model_cache.sweep(name)
        model = None
        if model_cache.find(name) is None:  # another process may have been faster
            model = _convert(file, name, digest, read_model, partial(read_tokenizer, original, arguments))
    loaded = cached()  # so that the first load returns the same as later ones
    if loaded is not None:
        return loaded
    if model is None or kind != torch.float32:
        model = read_model(original, kind, arguments)
    return model, partial(read_tokenizer, original, arguments)


def _read_cached(
    name: str, kind: torch.dtype | str, read_model: ReadModel, read_tokenizer: ReadTokenizer
) -> tuple[Any, Callable[[], Any]] | None:
    """The model from the cache; None if it is not there. A model that cannot be read is removed."""
    folder, arguments = model_cache.find(name), {"trust_remote_code": False}
    if folder is None:
        return None
    try:
        return read_model(str(folder), kind, arguments), partial(read_tokenizer, str(folder), arguments)
    except (OSError, ValueError, SafetensorError, SourceError) as error:
        logger.warning("The cached model %s cannot be read (%s), so it is removed.", name, first_line(error))
        with suppress(SourceError):  # the cache may belong to another user
            model_cache.remove(name)
        return None


def _convert(file: Path, name: str, digest: str, read_model: ReadModel, tokenizer: Callable[[], Any]) -> Any:
    """Convert a file into the cache. Returns the model in float32 if it cannot be stored there, else None."""
    logger.info("Converting %s into %s. This is done once and may take minutes.", file.name, model_cache.cache_folder())
    before = model_cache.file_stamp(file)
    model = read_model(str(file.parent), torch.float32, {"gguf_file": file.name, "trust_remote_code": False})
    size = sum(tensor.numel() * tensor.element_size() for tensor in model.parameters())
    notes = {"source": file.name, "sha256": digest, "layout": _LAYOUT, "versions": _versions()}
    try:
        with guarded():
            words = tokenizer()
            if model_cache.file_stamp(file) != before:
                raise SourceError(f"{file.name} changed while it was read")
            _refuse_full_disk(size)
            model_cache.store(name, notes, partial(save_model, model, words))
            return None
    except (SourceError, Unreadable) as error:
        logger.warning(
            "%s is not cached in %s: %s. Every load will convert it again. The converted model takes %.1f GB; set "
            "FFSCOPE_CACHE to a folder that has room.",
            file.name,
            model_cache.cache_folder(),
            _reason(error),
            size / 1e9,
        )
    return model


def _refuse_full_disk(size: int) -> None:
    folder = model_cache.cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, "No space left on device")


def _reason(error: BaseException) -> str:
    cause = error.error if isinstance(error, Unreadable) else error
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return first_line(cause)


def _entry_name(file: Path, digest: str) -> str:
    """The file's name, and a digest of its content and of what a conversion depends on."""
    depends = json.dumps([digest, _LAYOUT, _versions()])
    stem = re.sub("[^A-Za-z0-9_-]+", "-", file.stem).strip("-")[:60] or "model"
    return f"{stem}-{hashlib.sha256(depends.encode()).hexdigest()[:16]}"


def _versions() -> dict[str, str | None]:
    return {name: _version(name) for name in _CONVERTERS}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
