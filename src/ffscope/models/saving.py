"""A model and its tokenizer as a folder of safetensors and configs, which is there when it is whole."""

import os
import shutil
from pathlib import Path
from typing import Any

from ffscope.errors import SourceError


def save_model(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write a model as transformers keeps it. The folder appears when all is in it; if another process was quicker, its is kept."""
    if hasattr(model.config, "quantization_config"):
        # It was dequantized when it was read; transformers refuses to save a model that it still believes quantized.
        del model.config.quantization_config
        model.hf_quantizer = None
        model.is_quantized = False
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        unfinished.mkdir()
        model.save_pretrained(unfinished)
        if tokenizer is not None:
            tokenizer.save_pretrained(unfinished)
        for file in unfinished.iterdir():
            shutil.copymode(unfinished / "config.json", file)  # who may read the one may read the weights
        _move(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _move(unfinished: Path, folder: Path) -> None:
    if not folder.is_dir():
        os.rename(unfinished, folder)
    elif not any(folder.iterdir()):  # an empty folder stays the one it is: somebody may stand in it
        for file in sorted(unfinished.iterdir(), key=lambda file: file.name == "config.json"):
            os.rename(file, folder / file.name)


def refuse_full(folder: Path) -> None:
    """Raise where a model would be written over something."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise SourceError(f"{folder} is there already. Name a new folder with --out.")
