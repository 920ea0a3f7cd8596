"""What is known about a model where it is not loaded: enough to plan what runs it elsewhere."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ffscope.errors import LensError
from ffscope.models.fingerprint import manifest_entry
from ffscope.models.lenses import check_lens
from ffscope.models.memory_model import MemoryModel


@dataclass(frozen=True)
class ModelInfo:
    """A model's description. Its attributes have the names and meanings of MemoryModel's."""

    entry: dict[str, Any]  # in a study's manifest
    memories: tuple[int, ...]
    hidden: int
    dtype: torch.dtype
    device: torch.device
    causal: bool
    positions: int | None
    tokenizer: Any
    has_start_token: bool  # an encoder–decoder's decoder has one
    no_lens: str | None  # why its vectors cannot be read over the vocabulary, if they cannot

    @property
    def layers(self) -> int:
        """The number of feed-forward layers."""
        return len(self.memories)

    def check_lens(self, name: str, study: Path | None = None) -> None:
        """Raise if the model cannot be read through this lens; a learned one is saved with a study."""
        check_lens(name, study)
        if self.no_lens is not None:
            raise LensError(self.no_lens)


def describe(model: MemoryModel) -> ModelInfo:
    """The description of a loaded model."""
    return ModelInfo(
        entry=manifest_entry(model),
        memories=model.memories,
        hidden=model.hidden,
        dtype=model.dtype,
        device=model.device,
        causal=model.causal,
        positions=model.positions,
        tokenizer=model.tokenizer,
        has_start_token=bool(getattr(model.model.config, "is_encoder_decoder", False)),
        no_lens=_why_no_lens(model),
    )


def _why_no_lens(model: MemoryModel) -> str | None:
    try:
        model.lens("norm")
    except LensError as error:
        return str(error)
    return None
