"""Sums over positions as one kernel for NVIDIA GPUs. Importing this needs Triton, which is part of torch's CUDA builds."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 256


def fused_sums(coefficients: Tensor, gradient: Tensor, sizes: bool) -> tuple[Tensor, Tensor | None]:
    """Σ coefficient × gradient and Σ |gradient| over the positions, in float32, reading both tensors once."""
    batch, positions, memories = coefficients.shape
    products, norms = (torch.empty(batch, memories, device=coefficients.device) for _ in range(2))
    grid: Any = (batch, triton.cdiv(memories, _BLOCK))
    strides = (*coefficients.stride()[:2], *gradient.stride()[:2])
    with torch.cuda.device(coefficients.device):
        _sums[grid](coefficients, gradient, products, norms, positions, memories, *strides, _BLOCK)
    return products, norms if sizes else None


@triton.jit
def _sums(  # type: ignore[no-untyped-def]
    coefficients,
    gradient,
    products,
    sizes,
    positions,
    memories,
    coefficients_batch_stride,
    coefficients_stride,
    gradient_batch_stride,
    gradient_stride,
    block: tl.constexpr,
):
    batch = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * block + tl.arange(0, block)
    inside = column < memories
    product = tl.zeros((block,), tl.float32)
    size = tl.zeros((block,), tl.float32)
    for at in range(positions):
        row = coefficients + batch * coefficients_batch_stride + at * coefficients_stride
        gradient_row = gradient + batch * gradient_batch_stride + at * gradient_stride
        coefficient = tl.load(row + column, mask=inside, other=0).to(tl.float32)
        slope = tl.load(gradient_row + column, mask=inside, other=0).to(tl.float32)
        product += coefficient * slope
        size += tl.abs(slope)
    tl.store(products + batch * memories + column, product, mask=inside)
    tl.store(sizes + batch * memories + column, size, mask=inside)
