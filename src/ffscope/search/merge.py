"""Several parts of a search as one: what a search of all their batches would have kept, bit for bit."""

from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor

State = dict[str, Tensor]
"""What `Accumulators.state` gives."""


def merge(states: Iterable[State]) -> State:
    """The state of all batches, from states of some of them each: whole batches, and none in two states.

    Every part is exact, so the order of the states and how they are grouped change nothing. One state at least.
    """
    return reduce(_merge_two, states)


def _merge_two(one: State, other: State) -> State:
    sums = {name: one[name] + other[name] for name in ("histogram", "total_coarse", "total_fine")}
    tops = {name: _highest(one[name], other[name]) for name in one.keys() & {"top", "low"}}
    ranks = torch.cat([one["sample_rank"], other["sample_rank"]], 1).topk(one["sample_rank"].shape[1], dim=1)
    return {
        **sums,
        **tops,
        "maximum": torch.maximum(one["maximum"], other["maximum"]),
        "sample": torch.cat([one["sample"], other["sample"]], 1).gather(1, ranks.indices),
        "sample_rank": ranks.values,
    }


def _highest(one: Tensor, other: Tensor) -> Tensor:
    """The highest keys of every memory. No two are equal but empty ones, so there are no ties to break."""
    return torch.cat([one, other], 1).topk(one.shape[1], dim=1).values
