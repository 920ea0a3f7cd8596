"""`highest` as one kernel for NVIDIA GPUs. Importing this needs Triton, which is part of torch's CUDA builds."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256


def highest(coefficients: Tensor, best: Tensor, position: Tensor) -> None:
    """Write the maximum over the positions, and the first position that has it, to `best` and `position`."""
    batch, positions, memories = coefficients.shape
    grid: Any = (batch, triton.cdiv(memories, _BLOCK))
    strides = (*coefficients.stride()[:2], best.stride(0), position.stride(0))
    with torch.cuda.device(coefficients.device):
        _highest[grid](coefficients, best, position, positions, memories, *strides, _BLOCK)


@triton.jit
def _highest(  # type: ignore[no-untyped-def]
    coefficients,
    best,
    position,
    positions,
    memories,
    batch_stride,
    stride,
    best_stride,
    position_stride,
    block: tl.constexpr,
):
    batch = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < memories
    highest = tl.full((block,), float("-inf"), tl.float32)
    first = tl.zeros((block,), tl.int32)
    for at in range(positions):
        row = coefficients + batch * batch_stride + at * stride
        coefficient = tl.load(row + column, mask=inside, other=0).to(tl.float32)
        higher = (coefficient > highest) | (coefficient != coefficient)  # NaN is kept, so that it is detected
        highest = tl.where(higher, coefficient, highest)
        first = tl.where(higher, at, first)
    tl.store(best + batch * best_stride + column, highest, mask=inside)
    tl.store(position + batch * position_stride + column, first.to(tl.int16), mask=inside)
