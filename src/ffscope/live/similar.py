"""Memories whose values point where a memory's does."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ffscope.axes import Float
from ffscope.live.cancellation import Stop, heed
from ffscope.live.responses import Similar
from ffscope.memory_name import Memory
from ffscope.models.feed_forward import FeedForward
from ffscope.models.linear_parts import written
from ffscope.models.memory_model import MemoryModel

_ROWS = 2**13  # values that are held in float32 at once


def value_rows(layer: FeedForward) -> Iterator[tuple[int, Float[Tensor, "_some hidden"]]]:
    """A layer's values in float32 at least, some at a time, each time with the number of the first."""
    for part in layer.parts:
        values = part.values()
        exact = torch.promote_types(values.dtype, torch.float32)
        for start in range(0, part.memories, _ROWS):
            yield part.offset + start, values[start : start + _ROWS].to(exact)


@torch.no_grad()
def similar_to(model: MemoryModel, memory: Memory, *, count: int, stop: Stop) -> list[Similar]:
    """The memories of any layer with the highest cosines, itself apart; none where its own value is nothing."""
    home = model.layer(memory.layer)
    own = written(home, home.values()[memory.memory, None])[0].float()
    if not own.any():
        return []
    own = own / own.norm()
    found: list[tuple[float, Memory]] = []
    for layer in range(model.layers):
        for first, rows in value_rows(model.layer(layer)):
            heed(stop)
            if rows.shape[1] == len(own):
                found += _closest(written(model.layer(layer), rows).float(), own, count + 1, Memory(layer, first))
        found = sorted(found, key=lambda one: (-one[0], one[1]))[: count + 1]
    return [Similar(str(other), cosine) for cosine, other in found if other != memory][:count]


def _closest(rows: Tensor, own: Tensor, count: int, first: Memory) -> list[tuple[float, Memory]]:
    sizes = rows.norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    highest = (rows @ own.to(rows.device) / sizes).clamp(-1, 1).topk(min(count, len(rows)))
    numbers = (highest.indices + first.memory).tolist()
    return [
        (cosine, Memory(first.layer, number)) for cosine, number in zip(highest.values.tolist(), numbers, strict=True)
    ]
