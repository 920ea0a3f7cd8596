"""What a study records about its model, so that results of different models are never mixed."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import torch
from torch import Tensor

from ffscope.models.memory_model import MemoryModel
from ffscope.models.placement import named_weights

_CHUNK = 2**22
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by element size in bytes


def manifest_entry(model: MemoryModel) -> dict[str, Any]:
    """The model's entry in a study's manifest."""
    return {
        "source": model.source,
        **({"model_type": model.named_type} if model.named_type else {}),  # what another load needs
        "family": model.model_type,
        "layers": model.layers,
        "memories": list(model.memories),
        "hidden": model.hidden,
        "vocab": model.vocab,
        "dtype": str(model.dtype).removeprefix("torch."),
        "gated": model.gated,
        "causal": model.causal,
        "fingerprint": fingerprint(model.model),
    }


@torch.no_grad()
def fingerprint(model: Any) -> str:
    """A digest of all weights as they are in memory: the same weights in another precision have another digest."""
    return digest_of(named_weights(model))


def digest_of(weights: Iterable[tuple[str, Tensor]]) -> str:
    """A digest of weights with their names, in order."""
    digest = blake2b(digest_size=16)
    for name, tensor in weights:
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {_checksum(tensor)}\n".encode())
    return digest.hexdigest()


def _checksum(tensor: Tensor) -> int:
    """A sum over the bits of all elements, weighted by position. It is a sum of integers, so the order does not matter."""
    flat = tensor.detach().flatten()
    total = 0
    for start in range(0, flat.numel(), _CHUNK):
        bits = flat[start : start + _CHUNK].contiguous().view(_INTEGERS[flat.element_size()]).long()
        places = torch.arange(start, start + len(bits), device=bits.device)
        total += int((bits * (places * 0x9E3779B97F4A7C1 + 0x632BE59BD9B4E01)).sum())
    return total % 2**64
