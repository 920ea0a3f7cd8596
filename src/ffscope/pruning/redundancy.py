"""Memories that another one of their layer could stand in for: it has the same triggers, and a value that points the same way."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn.functional import normalize

from ffscope.axes import Array
from ffscope.models.linear_parts import to_residual
from ffscope.models.memory_model import MemoryModel
from ffscope.study.folder import Study

_ROWS = 1024  # memories whose values are compared at once with all others of their layer


class LayerTriggers(NamedTuple):
    """The triggers of a layer, one row each: the memory, and a number that equal prefixes share."""

    layer: int
    memories: int
    memory: Array
    prefix: Array


def read_triggers(study: Study, memories: tuple[int, ...]) -> list[LayerTriggers]:
    """The triggers of every layer."""
    table = pq.read_table(study.path("triggers.parquet"), columns=["layer", "memory", "sentence", "position"])
    layers, memory, sentence, position = (table[name].to_numpy().astype(np.int64) for name in table.column_names)
    prefix = sentence << 20 | position
    return [
        LayerTriggers(layer, count, memory[here], prefix[here])
        for layer, count in enumerate(memories)
        for here in [layers == layer]
    ]


@torch.no_grad()
def related_pairs(model: MemoryModel, triggers: LayerTriggers) -> dict[str, Tensor]:
    """All pairs (memory, partner) of a layer that share triggers and have values at less than a right angle, in order."""
    layer = model.layer(triggers.layer)
    values = normalize(to_residual(layer, layer.values()).float(), dim=-1)
    memories, partners, shared, cosines = [], [], [], []
    for start, counts in _shared_counts(triggers):
        rows = torch.from_numpy(counts).to(values.device)
        cosine = values[start : start + len(counts)] @ values.T
        row, partner = ((rows > 0) & (cosine > 0)).nonzero().T
        memories.append((row + start).cpu())
        partners.append(partner.cpu())
        shared.append(rows[row, partner].cpu())
        cosines.append(cosine[row, partner].cpu())
    pairs = {"memory": memories, "partner": partners, "shared": shared, "cosine": cosines}
    return {name: torch.cat(tensors) if tensors else torch.zeros(0) for name, tensors in pairs.items()}


def _shared_counts(triggers: LayerTriggers) -> Iterator[tuple[int, Array]]:
    """For blocks of memories, the first and how many triggers each shares with every memory; 0 with itself."""
    _, number = np.unique(triggers.prefix, return_inverse=True)
    by_prefix = np.argsort(number, kind="stable")
    members, ends = triggers.memory[by_prefix], np.cumsum(np.bincount(number))
    by_memory = np.argsort(triggers.memory, kind="stable")
    stops = np.cumsum(np.bincount(triggers.memory, minlength=triggers.memories))
    for start in range(0, triggers.memories, _ROWS):
        rows = range(start, min(start + _ROWS, triggers.memories))
        counts = np.zeros((len(rows), triggers.memories), dtype=np.int32)
        for memory in rows:
            prefixes = number[by_memory[stops[memory - 1] if memory else 0 : stops[memory]]]
            sharing = [members[ends[prefix - 1] if prefix else 0 : ends[prefix]] for prefix in prefixes.tolist()]
            if sharing:
                counts[memory - start] = np.bincount(np.concatenate(sharing), minlength=triggers.memories)
            counts[memory - start, memory] = 0
        yield start, counts


@dataclass(frozen=True)
class LayerRedundancy:
    """The redundancy of every memory of a layer: its nearest partner's, and what is left of it when the memory is pruned."""

    redundancy: Array
    partner: Array  # -1 for none
    cosine: Array
    shared: Array
    triggers: Array
    left: Array


def layer_redundancy(triggers: LayerTriggers, pairs: dict[str, Array], contribution: Array) -> LayerRedundancy:
    """From the pairs of a layer. Of two that are each other's partners, the one with the smaller contribution is pruned first."""
    count = triggers.memories
    lengths = np.bincount(triggers.memory, minlength=count)
    memory, partner = pairs["memory"], pairs["partner"]
    degree = pairs["cosine"].astype(np.float64) * pairs["shared"] / np.maximum(lengths[memory], 1)
    order = np.lexsort((partner, -degree, memory))
    memory, partner, degree = memory[order], partner[order], degree[order]
    starts = np.searchsorted(memory, np.arange(count + 1))
    first = starts[:-1][starts[:-1] < starts[1:]]  # the best pair of each memory that has one
    rows = {name: np.zeros(count) for name in ("redundancy", "cosine", "shared")}
    best = np.full(count, -1)
    rows["redundancy"][memory[first]], best[memory[first]] = degree[first], partner[first]
    for name in ("cosine", "shared"):
        rows[name][memory[first]] = pairs[name][order][first]
    return LayerRedundancy(**rows, partner=best, triggers=lengths, left=_left(starts, partner, degree, contribution))


def _left(starts: Array, partner: Array, degree: Array, contribution: Array) -> Array:
    """The redundancy of each memory among those pruned after it, where always the most redundant one is pruned next."""
    count = len(starts) - 1
    left, pruned, at = np.zeros(count), np.zeros(count, dtype=bool), starts[:-1].copy()
    waiting = [
        (-degree[at[memory]], contribution[memory], memory)
        for memory in range(count)
        if at[memory] < starts[memory + 1]
    ]
    heapq.heapify(waiting)
    while waiting:
        negative, _, memory = heapq.heappop(waiting)
        while at[memory] < starts[memory + 1] and pruned[partner[at[memory]]]:
            at[memory] += 1
        if at[memory] == starts[memory + 1]:  # no partner is left, so it is not redundant any more
            continue
        if -degree[at[memory]] > negative:  # its partner was pruned since; it waits for its turn with the next one
            heapq.heappush(waiting, (-degree[at[memory]], contribution[memory], memory))
            continue
        left[memory], pruned[memory] = -negative, True
    return left
