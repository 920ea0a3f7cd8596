"""The highest coefficient of every memory in each sentence, and its position."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.search.key_table import places

_CHUNK = 2**19  # coefficients compared at once: they should fit into a CPU's cache


def highest(
    coefficients: Float[Tensor, "batch pos memory"],
    best: Float[Tensor, "batch memory"],
    position: Int[Tensor, "batch memory"],
) -> None:
    """Write the maximum over the positions, and the first position that has it, to `best` and `position`."""
    if coefficients.device.type == "cpu":
        best.copy_(coefficients.amax(1))
        position.copy_(first_positions(coefficients, best))
        return
    contiguous = coefficients.stride(2) == best.stride(1) == position.stride(1) == 1
    fused = _fused() if coefficients.is_cuda and contiguous else None
    (fused or plain)(coefficients, best, position)


def plain(coefficients: Tensor, best: Tensor, position: Tensor) -> None:
    """The same in plain torch, several times slower than the memory bandwidth allows."""
    maxima = coefficients.max(1)
    best.copy_(maxima.values)
    position.copy_(maxima.indices)


def candidate_positions(
    coefficients: Float[Tensor, "batch pos memory"],
    best: Float[Tensor, "batch memory"],
    threshold: Float[Tensor, "memory"],
    position: Int[Tensor, "batch memory"],
) -> None:
    """Write the first position of each maximum in `best` to `position`, but only if it reaches its memory's threshold."""
    sentence, memory = places(best >= threshold)
    position[sentence, memory] = coefficients[sentence, :, memory].argmax(1).to(position.dtype)


def first_positions(
    coefficients: Float[Tensor, "batch pos memory"], best: Float[Tensor, "batch memory"]
) -> Int[Tensor, "batch memory"]:
    """The first position of each maximum in `best`. On a CPU comparing is several times faster than `max` with indices."""
    length, memories = coefficients.shape[1:]
    rows = max(1, _CHUNK // (length * memories))
    # A float32 result, as torch compares to bool more slowly. It counts the positions to the end: most for the first one.
    left = torch.arange(length, 0, -1.0, device=best.device)[:, None]
    equal = torch.empty((rows, length, memories), device=best.device)
    counts = [
        torch.eq(some, maxima[:, None], out=equal[: len(some)]).mul_(left).amax(1)
        for some, maxima in zip(coefficients.split(rows), best.split(rows), strict=True)
    ]
    return length - torch.cat(counts).long()


@cache
def _fused() -> Callable[[Tensor, Tensor, Tensor], None] | None:
    try:
        from ffscope.search.fused import highest
    except ImportError:  # no Triton for this device
        return None
    return highest
