"""`highest` as one kernel for NVIDIA GPUs. Importing this needs Triton, which comes with torch there."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256


def highest(coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """The highest over the positions, in float32, and the first position that has it; batch × pos × memory goes in."""
    batch, positions, memories = coefficients.shape
    best = torch.empty((batch, memories), device=coefficients.device)
    position = torch.empty((batch, memories), dtype=torch.int16, device=coefficients.device)
    grid: Any = (batch, triton.cdiv(memories, _BLOCK))
    with torch.cuda.device(coefficients.device):
        _highest[grid](coefficients, best, position, positions, memories, *coefficients.stride()[:2], _BLOCK)
    return best, position


@triton.jit
def _highest(given, best, position, positions, memories, batch_stride, stride, block: tl.constexpr):  # type: ignore[no-untyped-def]
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
    tl.store(best + batch * memories + column, highest, mask=there)
    tl.store(position + batch * memories + column, first.to(tl.int16), mask=there)
