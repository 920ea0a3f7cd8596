"""The highest coefficient of every memory in each sentence, and its position."""

from collections.abc import Callable
from functools import cache

from torch import Tensor

from ffscope.axes import Float, Int


def highest(
    coefficients: Float[Tensor, "batch pos memory"],
    best: Float[Tensor, "batch memory"],
    position: Int[Tensor, "batch memory"],
) -> None:
    """Write the maximum over the positions, and the first position that has it, to `best` and `position`."""
    contiguous = coefficients.stride(2) == best.stride(1) == position.stride(1) == 1
    fused = _fused() if coefficients.is_cuda and contiguous else None
    (fused or plain)(coefficients, best, position)


def plain(coefficients: Tensor, best: Tensor, position: Tensor) -> None:
    """The same in plain torch, several times slower than the memory bandwidth allows."""
    maxima = coefficients.max(1)
    best.copy_(maxima.values)
    position.copy_(maxima.indices)


@cache
def _fused() -> Callable[[Tensor, Tensor, Tensor], None] | None:
    try:
        from ffscope.search.fused import highest
    except ImportError:  # no Triton for this device
        return None
    return highest
