"""Merging the states of partial searches: bit for bit the state of a search over all their batches."""

from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor

State = dict[str, Tensor]
"""The result of `Accumulators.state`."""


def merge(states: Iterable[State]) -> State:
    """The state of all batches, from one or more states over disjoint sets of batches.

    Every part is exact, so the order and grouping of the states do not matter.
    """
    return reduce(_merge_two, states)


def _merge_two(first: State, second: State) -> State:
    sums = {name: first[name] + second[name] for name in ("histogram", "total_coarse", "total_fine")}
    tops = {name: _highest(first[name], second[name]) for name in first.keys() & {"top", "low"}}
    ranks = torch.cat([first["sample_rank"], second["sample_rank"]], 1).topk(first["sample_rank"].shape[1], dim=1)
    return {
        **sums,
        **tops,
        "maximum": torch.maximum(first["maximum"], second["maximum"]),
        "sample": torch.cat([first["sample"], second["sample"]], 1).gather(1, ranks.indices),
        "sample_rank": ranks.values,
    }


def _highest(first: Tensor, second: Tensor) -> Tensor:
    """The highest keys of every memory. Only empty keys can be equal, so there are no ties."""
    return torch.cat([first, second], 1).topk(first.shape[1], dim=1).values
