"""Save a model and its tokenizer as a folder of safetensors and configs, which appears only when complete."""

import glob
import os
import platform
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from ffscope.errors import SourceError


def save_model(
    model: Any, tokenizer: Any, folder: Path, *, complete: Callable[[Path], None] = lambda _folder: None
) -> None:
    """Save a model in transformers' format. The folder appears only when complete, unless another process wrote it first.

    `complete` gets the folder before it appears, and may check it and add to it.
    """
    if hasattr(model.config, "quantization_config"):
        # It was dequantized when loaded, but transformers refuses to save a model that is still marked as quantized.
        del model.config.quantization_config
        model.hf_quantizer = None
        model.is_quantized = False
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    unfinished = folder.with_name(f".{folder.name}.{platform.node()}.{os.getpid()}")
    try:
        unfinished.mkdir()
        model.save_pretrained(unfinished)
        if tokenizer is not None:
            tokenizer.save_pretrained(unfinished)
        complete(unfinished)
        for file in unfinished.iterdir():
            shutil.copymode(unfinished / "config.json", file)  # whoever may read the config may read the weights
        _move(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """Remove what killed processes of this machine were writing; on another machine they may still run."""
    prefix = f".{folder.name}.{platform.node()}."
    for abandoned in folder.parent.glob(f"{glob.escape(prefix)}*"):
        number = abandoned.name.removeprefix(prefix)
        if number.isdecimal() and (int(number) == os.getpid() or not psutil.pid_exists(int(number))):
            shutil.rmtree(abandoned, ignore_errors=True)


def _move(unfinished: Path, folder: Path) -> None:
    if not folder.is_dir():
        os.rename(unfinished, folder)
    elif not any(
        folder.iterdir()
    ):  # fill an empty folder instead of replacing it: it may be some process's working directory
        for file in sorted(unfinished.iterdir(), key=lambda file: file.name == "config.json"):
            os.rename(file, folder / file.name)


def refuse_overwriting(folder: Path) -> None:
    """Raise if writing a model would overwrite something."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise SourceError(f"{folder} already exists. Name a new folder with --out.")
