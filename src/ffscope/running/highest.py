"""Each sentence's highest coefficient of every memory, and where it is."""

from collections.abc import Callable
from functools import cache

from torch import Tensor

from ffscope.axes import Float, Int


def highest(
    coefficients: Float[Tensor, "batch pos memory"],
) -> tuple[Float[Tensor, "batch memory"], Int[Tensor, "batch memory"]]:
    """The highest over the positions, in float32, and the first position that has it."""
    fused = _fused() if coefficients.is_cuda and coefficients.stride(2) == 1 else None
    return plain(coefficients) if fused is None else fused(coefficients)


def plain(coefficients: Float[Tensor, "batch pos memory"]) -> tuple[Tensor, Tensor]:
    """The same by torch alone, which reads the coefficients several times slower than the memory allows."""
    found = coefficients.max(1)
    return found.values.float(), found.indices.short()


@cache
def _fused() -> Callable[[Tensor], tuple[Tensor, Tensor]] | None:
    try:
        from ffscope.running.fused import highest
    except ImportError:  # no Triton for this device
        return None
    return highest
