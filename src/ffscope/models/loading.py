"""`load`: read a model, find its layout in the table of families or by discovery, and prove it."""

import difflib
import logging
from pathlib import Path
from typing import Any

import torch

from ffscope.errors import InputError, LayoutError, ProofError, SourceError
from ffscope.models.check import prove, prove_all
from ffscope.models.discovery import discover
from ffscope.models.families import FAMILIES
from ffscope.models.inputs import MODEL_ERRORS
from ffscope.models.memory_model import MemoryModel
from ffscope.models.sources import read_source

logger = logging.getLogger(__name__)


def load(
    source: Any,
    device: str = "auto",
    dtype: str | torch.dtype = "auto",
    *,
    trust_remote_code: bool = False,
    model_type: str | None = None,
    device_map: str | dict[str, Any] | None = None,
) -> MemoryModel:
    """The model at a hub name, folder or .gguf file, or a bundled default (`smollm2-135m`), as memories, proven on a few tokens.

    `model_type` names the architecture, such as "bert", for a config.json that does not. `device_map`, instead of `device`,
    spreads the model over several devices and main memory: "auto", or a dictionary as in transformers.
    """
    if not isinstance(source, str | Path):
        raise SourceError(
            f"Expected a model's name or path, found a {type(source).__name__}. "
            "To read a model that is already in memory, call `ffscope.read(model, tokenizer)`."
        )
    model, tokenizer = read_source(
        str(source),
        device=device,
        dtype=dtype,
        trust_remote_code=trust_remote_code,
        model_type=model_type,
        device_map=device_map,
    )
    loaded = read(model, tokenizer, source=str(source))
    loaded.named_type = model_type
    return loaded


def read(model: Any, tokenizer: Any = None, *, source: str = "") -> MemoryModel:
    """A transformers model that is already in memory, as memories, proven on a few tokens."""
    memory_model = make_memory_model(model, tokenizer, source=source)
    if not memory_model.discovered:  # a discovered layout has already passed every identity
        prove(memory_model)
    return memory_model


def make_memory_model(model: Any, tokenizer: Any = None, *, source: str = "") -> MemoryModel:
    """A model with its family's row, not yet checked; or with a discovered row that passed every identity."""
    model_type = model.config.model_type
    if model_type in FAMILIES:
        return MemoryModel(model, tokenizer, FAMILIES[model_type], source=source)
    try:
        memory_model = MemoryModel(model, tokenizer, discover(model), discovered=True, source=source)
        prove_all(memory_model)
    except (InputError, LayoutError, ProofError, *MODEL_ERRORS) as error:
        close = difflib.get_close_matches(model_type, FAMILIES, n=1, cutoff=0.8)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        reason = str(error) or type(error).__name__
        raise LayoutError(f"No feed-forward layout for model_type {model_type!r}.{hint} {reason}") from error
    logger.info("%r is not in the table; its feed-forward layout was discovered and passes every identity.", model_type)
    return memory_model
