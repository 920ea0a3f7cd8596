"""Each sentence's highest coefficient of every memory, and where it is."""

from collections.abc import Callable
from functools import cache

from torch import Tensor

from ffscope.axes import Float, Int


def highest(
    coefficients: Float[Tensor, "batch pos memory"],
    best: Float[Tensor, "batch memory"],
    position: Int[Tensor, "batch memory"],
) -> None:
    """Put the highest over the positions, and the first position that has it, into `best` and `position`."""
    straight = coefficients.stride(2) == best.stride(1) == position.stride(1) == 1
    fused = _fused() if coefficients.is_cuda and straight else None
    (fused or plain)(coefficients, best, position)


def plain(coefficients: Tensor, best: Tensor, position: Tensor) -> None:
    """The same by torch alone, which reads the coefficients several times slower than the memory allows."""
    found = coefficients.max(1)
    best.copy_(found.values)
    position.copy_(found.indices)


@cache
def _fused() -> Callable[[Tensor, Tensor, Tensor], None] | None:
    try:
        from ffscope.search.fused import highest
    except ImportError:  # no Triton for this device
        return None
    return highest
