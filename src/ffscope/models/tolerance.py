"""How far two tensors that should be equal may lie apart."""

import torch
from torch import Tensor

from ffscope.axes import Float

_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
_LOW_PRECISION = 3e-2  # bf16 keeps 8 bits
_ROUNDINGS = 4  # of the terms of a sum, on the way to it


def tolerance(dtype: torch.dtype) -> float:
    """The largest relative error that rounding explains."""
    return _TOLERANCE.get(dtype, _LOW_PRECISION)


def relative_error(found: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest expected size; infinite where the shapes cannot match."""
    found, expected = found.double().flatten(), expected.double().flatten()
    if found.shape != expected.shape:
        return float("inf")
    return (found - expected).abs().max().item() / max(expected.abs().max().item(), torch.finfo(torch.float32).tiny)


def sum_error(
    total: Float[Tensor, "tokens hidden"], rest: Float[Tensor, "tokens hidden"], term: Float[Tensor, "tokens hidden"]
) -> float:
    """How far total - rest is from term, in units of the term at the same token, beyond what rounding the sum explains.

    A residual can be a million times larger than what is added to it, in a few of its dimensions. Measured against the residual
    a wrong term would pass there, and measured against the term a right one would fail; so each element may err by its own
    rounding.
    """
    epsilon = torch.finfo(total.dtype).eps
    total, rest, term = total.double(), rest.double(), term.double()
    rounding = _ROUNDINGS * epsilon * (total.abs() + rest.abs() + term.abs())
    excess = ((total - rest - term).abs() - rounding).clamp_min(0)
    excess[(total - rest - term).isnan()] = float("nan")
    size = term.abs().amax(-1).clamp_min(torch.finfo(torch.float32).tiny)
    return (excess.amax(-1) / size).max().item()
