"""How far two tensors that should be equal may lie apart."""

import torch
from torch import Tensor

_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
_LOW_PRECISION = 3e-2  # bf16 keeps 8 bits, and a sum of three terms loses one more


def tolerance(dtype: torch.dtype) -> float:
    """The largest relative error that rounding explains."""
    return _TOLERANCE.get(dtype, _LOW_PRECISION)


def relative_error(found: Tensor, expected: Tensor, *, size: float | None = None) -> float:
    """The largest difference over the largest expected size, or the one given; infinite where the shapes cannot match."""
    found, expected = found.double().flatten(), expected.double().flatten()
    if found.shape != expected.shape:
        return float("inf")
    size = expected.abs().max().item() if size is None else size
    return (found - expected).abs().max().item() / max(size, torch.finfo(torch.float32).tiny)
