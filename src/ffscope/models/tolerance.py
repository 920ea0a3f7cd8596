"""How much two tensors that should be equal may differ."""

import torch
from torch import Tensor

from ffscope.axes import Float

_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
_LOW_PRECISION = 3e-2  # bf16 has 8 bits of precision
_ROUNDINGS = 4  # of each term of a sum


def tolerance(dtype: torch.dtype) -> float:
    """The largest relative error that rounding can explain."""
    return _TOLERANCE.get(dtype, _LOW_PRECISION)


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """The largest absolute difference divided by the largest expected magnitude; infinite if the sizes differ, 0 of nothing."""
    expected = expected.to(actual.device)  # a model may be spread over several
    actual, expected = actual.double().flatten(), expected.double().flatten()
    if actual.shape != expected.shape:
        return float("inf")
    if not expected.numel():
        return 0.0
    return (actual - expected).abs().max().item() / max(expected.abs().max().item(), torch.finfo(torch.float32).tiny)


def sum_error(
    total: Float[Tensor, "tokens hidden"], rest: Float[Tensor, "tokens hidden"], term: Float[Tensor, "tokens hidden"]
) -> float:
    """The error of total - rest = term, relative to the term at the same token, beyond what rounding the sum explains.

    In a few dimensions a residual can be a million times larger than what is added to it. Relative to the residual a wrong term
    would pass there, and relative to the term a right one would fail; so each element is allowed its own rounding error.
    """
    epsilon = torch.finfo(total.dtype).eps
    total, rest, term = total.double(), rest.double(), term.double()
    rounding = _ROUNDINGS * epsilon * (total.abs() + rest.abs() + term.abs())
    excess = ((total - rest - term).abs() - rounding).clamp_min(0)
    excess[(total - rest - term).isnan()] = float("nan")
    size = term.abs().amax(-1).clamp_min(torch.finfo(torch.float32).tiny)
    return (excess.amax(-1) / size).max().item()
