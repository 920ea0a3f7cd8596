"""`load`: a source, read, laid out by its family's row or discovered, and proven."""

import difflib
import logging
from pathlib import Path
from typing import Any

import torch

from ffscope.errors import InputError, LayoutError, ProofError, SourceError
from ffscope.models.check import prove, prove_all
from ffscope.models.discovery import discover
from ffscope.models.families import FAMILIES
from ffscope.models.inputs import RUNNING
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
) -> MemoryModel:
    """A hub name, a folder, a .gguf file or a bundled default (`smollm2-135m`) as memories, proven on a few tokens.

    `model_type` is what a config.json without one leaves out, such as "bert".
    """
    if not isinstance(source, str | Path):
        raise SourceError(
            f"Expected a model's name or path, found a {type(source).__name__}. "
            "A model that is in memory already is read by `ffscope.read(model, tokenizer)`."
        )
    model, tokenizer = read_source(
        str(source), device=device, dtype=dtype, trust_remote_code=trust_remote_code, model_type=model_type
    )
    loaded = read(model, tokenizer, source=str(source))
    loaded.named_type = model_type
    return loaded


def read(model: Any, tokenizer: Any = None, *, source: str = "") -> MemoryModel:
    """A transformers model that is in memory already, as memories, proven on a few tokens."""
    found = lay_out(model, tokenizer, source=source)
    if not found.discovered:  # what was discovered has passed every identity already
        prove(found)
    return found


def lay_out(model: Any, tokenizer: Any = None, *, source: str = "") -> MemoryModel:
    """A model by its family's row, taken at its word; or by a row that was discovered and passed every identity."""
    model_type = model.config.model_type
    if model_type in FAMILIES:
        return MemoryModel(model, tokenizer, FAMILIES[model_type], source=source)
    try:
        found = MemoryModel(model, tokenizer, discover(model), discovered=True, source=source)
        prove_all(found)
    except (InputError, LayoutError, ProofError, *RUNNING) as error:
        close = difflib.get_close_matches(model_type, FAMILIES, n=1, cutoff=0.8)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        reason = str(error) or type(error).__name__
        raise LayoutError(f"No feed-forward layout for model_type {model_type!r}.{hint} {reason}") from error
    logger.info("%r is not in the table; its feed-forward layout was discovered, and every identity holds.", model_type)
    return found
