"""Sums over the positions of each text, for every memory, in float32 at least."""

import torch
from torch import Tensor

from ffscope.axes import Float


def product_sums(
    coefficients: Float[Tensor, "n pos memory"], gradient: Float[Tensor, "n pos memory"]
) -> Float[Tensor, "n memory"]:
    """Σ coefficient × gradient."""
    return (coefficients * gradient).sum(1, dtype=_at_least_float32(gradient))


def size_sums(gradient: Float[Tensor, "n pos memory"]) -> Float[Tensor, "n memory"]:
    """Σ |gradient|."""
    exact = _at_least_float32(gradient)
    if gradient.is_cuda:
        return torch.linalg.vector_norm(gradient, ord=1, dim=1, dtype=exact)
    # On a CPU the norm along a dimension that is not the last is about three times slower than this.
    return gradient.abs().sum(1, dtype=exact)


def _at_least_float32(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)
