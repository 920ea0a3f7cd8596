"""A config.json without `model_type`, as in older checkpoints: guess the type, or read it as the type that the user names."""

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from transformers import CONFIG_MAPPING, PretrainedConfig

from ffscope.errors import SourceError, first_line


def missing_type_message(folder: str, config: dict[str, Any]) -> str:
    """The error message for a config.json without `model_type`; it suggests the option to use."""
    likely, reason = _likely(folder, config)
    example = likely or "bert"
    why = f" {reason}" if likely else " Its documentation should say which type it is."
    return (
        f"config.json in {folder} has no model_type, so transformers does not know what the model is.{why} "
        f"Name the type: --model-type {example} (in Python: model_type={example!r})."
    )


def config_of_type(folder: str, model_type: str, arguments: dict[str, Any]) -> PretrainedConfig:
    """The config of a folder or hub name, read as a model type. If config.json has a type, it must be the same."""
    if model_type not in CONFIG_MAPPING:
        close = difflib.get_close_matches(model_type, CONFIG_MAPPING, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise SourceError(
            f"--model-type is {model_type!r}, which transformers {transformers.__version__} does not know.{hint}"
        )
    offline = {"local_files_only": arguments.get("local_files_only", False)}
    stored, _ = PretrainedConfig.get_config_dict(folder, **offline)
    declared = stored.get("model_type")
    if declared not in (None, model_type):
        raise SourceError(
            f"--model-type is {model_type!r}, but config.json in {folder} gives model_type {declared!r}. The option is for a "
            "config.json without one: leave it out."
        )
    architecture = _architecture(stored)
    if architecture is not None and architecture.config_class is not CONFIG_MAPPING[model_type]:
        expected = architecture.config_class.model_type
        raise SourceError(
            f"--model-type is {model_type!r}, but `architectures` in config.json in {folder} names {architecture.__name__}, "
            f"which is of type {expected!r}. Use --model-type {expected}, or fix `architectures`."
        )
    with reading_as(model_type, folder):
        return CONFIG_MAPPING[model_type].from_pretrained(folder, **offline)


@contextmanager
def reading_as(model_type: str | None, folder: str) -> Iterator[None]:
    """If reading fails within the block, raise an error that says that the type the user named may be wrong."""
    try:
        yield
    except Exception as error:
        if model_type is None or isinstance(error, MemoryError):
            raise
        likely, reason = _likely(folder, {})
        hint = (
            f"{reason} Use --model-type {likely}." if likely and likely != model_type else "Try another --model-type."
        )
        raise SourceError(
            f"{folder} cannot be read as --model-type {model_type}: {first_line(error)}. {hint}"
        ) from error


def _likely(folder: str, config: dict[str, Any]) -> tuple[str | None, str]:
    """The type that `architectures` or the names of the weights suggest, and the reason as a sentence."""
    architecture = _architecture(config)
    if architecture is not None:
        return architecture.config_class.model_type, f"Its `architectures` names {architecture.__name__}."
    prefixes = Counter(name.split(".")[0] for name in _weight_names(Path(folder)))
    for prefix, _ in prefixes.most_common():
        if prefix in CONFIG_MAPPING:
            return prefix, f"Its weights are named {prefix}.…"
    return None, ""


def _architecture(config: dict[str, Any]) -> Any:
    """The class of transformers that `architectures` names; None if there is no such class."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    named = getattr(transformers, name, None) if name else None
    is_model = isinstance(named, type) and issubclass(named, transformers.PreTrainedModel)
    return named if is_model and getattr(named, "config_class", None) is not None else None


def _weight_names(folder: Path) -> Iterable[str]:
    """The names of the weights in a folder, if they can be read without loading the weights."""
    with suppress(Exception):  # only a hint depends on it
        for index in folder.glob("*.index.json"):
            return list(json.loads(index.read_text(encoding="utf-8"))["weight_map"])
        for file in folder.glob("*.safetensors"):
            with safe_open(file, "pt") as weights:
                return list(weights.keys())
        for file in folder.glob("pytorch_model*.bin"):
            return list(torch.load(file, map_location="meta", weights_only=True))
    return []
