"""Sums over the positions of each text, for every memory, in float32 at least."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from ffscope.axes import Float

Sums = tuple[Float[Tensor, "n memory"], Float[Tensor, "n memory"] | None]
"""Σ coefficient × gradient; Σ |gradient| where that is asked for."""


def position_sums(
    coefficients: Float[Tensor, "n pos memory"], gradient: Float[Tensor, "n pos memory"], *, sizes: bool
) -> Sums:
    """The sums, which one kernel computes on a GPU; `sizes` asks for the second."""
    contiguous = coefficients.stride(2) == gradient.stride(2) == 1
    fused = _fused() if gradient.is_cuda and gradient.dtype != torch.float64 and contiguous else None
    return (fused or plain_sums)(coefficients, gradient, sizes)


def plain_sums(
    coefficients: Float[Tensor, "n pos memory"], gradient: Float[Tensor, "n pos memory"], sizes: bool
) -> Sums:
    """The same in plain torch, which on a GPU writes all products and reads them again."""
    exact = torch.promote_types(gradient.dtype, torch.float32)
    # On a CPU torch's norm along a dimension that is not the last is about three times slower than the sum of absolute values.
    return (coefficients * gradient).sum(1, dtype=exact), gradient.abs().sum(1, dtype=exact) if sizes else None


@cache
def _fused() -> Callable[[Tensor, Tensor, bool], Sums] | None:
    try:
        from ffscope.effects.fused_sums import fused_sums
    except ImportError:  # no Triton for this device
        return None
    return fused_sums
