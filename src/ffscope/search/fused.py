"""`highest` as one kernel for NVIDIA GPUs. Importing this needs Triton, which comes with torch there."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256


def highest(coefficients: Tensor, best: Tensor, position: Tensor) -> None:
    """Put the highest over the positions, and the first position that has it, into `best` and `position`."""
    batch, positions, memories = coefficients.shape
    grid: Any = (batch, triton.cdiv(memories, _BLOCK))
    strides = (*coefficients.stride()[:2], best.stride(0), position.stride(0))
    with torch.cuda.device(coefficients.device):
        _highest[grid](coefficients, best, position, positions, memories, *strides, _BLOCK)


@triton.jit
def _highest(  # type: ignore[no-untyped-def]
    given, best, position, positions, memories, batch_stride, stride, best_stride, position_stride, block: tl.constexpr
):
    batch = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    there = column < memories
    highest = tl.full((block,), float("-inf"), tl.float32)
    first = tl.zeros((block,), tl.int32)
    for at in range(positions):
        one = tl.load(given + batch * batch_stride + at * stride + column, mask=there, other=0).to(tl.float32)
        higher = (one > highest) | (one != one)  # what is not a number stays, to be found out
        highest = tl.where(higher, one, highest)
        first = tl.where(higher, at, first)
    tl.store(best + batch * best_stride + column, highest, mask=there)
    tl.store(position + batch * position_stride + column, first.to(tl.int16), mask=there)
