"""Models that are written into a folder, loaded from it again, and compared with the model that they were made from."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ffscope.errors import LayoutError, SourceError, first_line
from ffscope.models.inputs import Inputs, random_inputs
from ffscope.models.loading import load
from ffscope.models.memory_model import MemoryModel
from ffscope.models.saving import save_model
from ffscope.models.tolerance import relative_error, tolerance

_ROUNDINGS = 10  # a pass through all layers rounds more often than one layer does


def refuse_existing(folder: Path) -> None:
    """Raise if there is something where a model is to be written."""
    if folder.exists():
        raise SourceError(f"{folder} already exists. Name a new folder with --out.")


def write_model(model: Any, tokenizer: Any, folder: Path, *, complete: Callable[[Path], None]) -> None:
    """Save a model in a new folder, which appears once `complete` has checked it; SourceError if it cannot be written."""
    try:
        save_model(model, tokenizer, folder, complete=complete)
    except OSError as error:
        raise SourceError(f"The model cannot be written to {folder}: {error.strerror or error}.") from error
    except RuntimeError as error:
        if "shared tensors" not in str(error):  # out of memory, for example
            raise
        raise LayoutError(
            "transformers does not save weights that several layers share without its knowing: expected each in one place. Untie "
            f"them first. {first_line(error)}."
        ) from error


def load_written(folder: Path, like: MemoryModel, dtype: torch.dtype | None = None) -> MemoryModel:
    """A written model, where another one is and by default in its precision."""
    model = like.model
    spread = getattr(model, "hf_device_map", None)
    where = {"device_map": "auto"} if spread else {"device": str(like.device)}
    own_code = type(model).__module__.startswith("transformers_modules.")  # which was trusted when it was loaded
    written = load(str(folder), dtype=dtype or like.dtype, trust_remote_code=own_code, **where)
    written.tokenizer = like.tokenizer
    return written


def error_of_written(
    written: MemoryModel,
    model: MemoryModel,
    edited: AbstractContextManager[None],
    of_written: AbstractContextManager[None] | None = None,
) -> float:
    """The largest relative error of a written model's logits on random inputs, compared with another one that is edited live.

    Without logits, of the last output. The written model may be edited live too.
    """
    inputs = random_inputs(model.model, batch=2, length=min(16, model.positions or 16))
    with of_written or nullcontext():
        actual = _prediction(written, inputs)
    with edited:
        expected = _prediction(model, inputs)
    rows = zip(actual.flatten(0, -2), expected.flatten(0, -2), strict=True)
    errors = torch.tensor([relative_error(row, other) for row, other in rows])
    # In low precision a rounding can send a token to another expert; most tokens must still agree.
    return float(errors.max() if model.dtype.itemsize >= 4 else errors.median())


def _prediction(model: MemoryModel, inputs: Inputs) -> Tensor:
    trace = model.trace(inputs, layers=[model.layers - 1])
    return trace.output[0] if trace.logits is None else trace.logits


def largest_error(dtype: torch.dtype, rounded_to: torch.dtype | None = None) -> float:
    """The largest error that rounding explains; where written numbers are new ones, that of the files' precision included."""
    limit = _ROUNDINGS * tolerance(dtype)
    if rounded_to is None or rounded_to == dtype:
        return limit
    return limit + _ROUNDINGS * torch.finfo(rounded_to).eps
