"""The highest-ranked keys of every memory under a total order, so the result does not depend on the order of arrival."""

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Int
from ffscope.search.trigger_keys import EMPTY

_MANY = 1 / 12  # share of candidates above which merging all rows at once is faster, apart from a fixed cost per memory


class KeyTable:
    """The `width` highest-ranked keys of every memory. A key is its own rank; subclasses may define another in `highest`."""

    def __init__(self, memories: int, width: int, device: torch.device) -> None:
        self.keys = torch.full((memories, width), EMPTY, dtype=torch.int64, device=device)
        # Merging one key of a memory costs about as much as merging several, so new keys are buffered. The buffers are allocated
        # once: small long-lived allocations among large short-lived ones would fragment the memory.
        size = max(1024, memories * max(10, width // 2))
        self._buffered_memories = torch.empty(size, dtype=torch.int64, device=device)
        self._buffered_keys = torch.empty(size, dtype=torch.int64, device=device)
        self._buffered = 0

    def highest(
        self, keys: Int[Tensor, "some few"], memories: Int[Tensor, "some"] | slice
    ) -> Int[Tensor, "some width"]:
        """The highest-ranked of these memories' keys, in descending order; `keys` may be overwritten."""
        width = self.keys.shape[1]
        if keys.device.type != "cpu":
            return keys.topk(width, dim=1).values
        keys.numpy().sort(axis=1)  # vectorised, so ten times faster than topk
        return keys[:, -width:].flip(1)

    def offer(self, memories: Int[Tensor, "new"], keys: Int[Tensor, "new"]) -> None:
        """Add keys to the buffer, and merge it when it is full."""
        start = 0
        while start < len(keys):
            count = min(len(keys) - start, len(self._buffered_keys) - self._buffered)
            target = slice(self._buffered, self._buffered + count)
            self._buffered_memories[target] = memories[start : start + count]
            self._buffered_keys[target] = keys[start : start + count]
            self._buffered += count
            start += count
            if self._buffered == len(self._buffered_keys):
                self.merge()

    def merge_rows(self, keys: Int[Tensor, "rows some"], first: int) -> None:
        """Merge rows of keys, some of which may be empty, for consecutive memories: faster than `offer` if most are not."""
        fresh = keys.T.contiguous()  # joining strided tensors is slow
        self._merge_some(slice(first, first + len(fresh)), fresh)

    def merge(self) -> None:
        """Merge the buffered keys into the table."""
        if not self._buffered:
            return
        memories, keys = self._buffered_memories[: self._buffered], self._buffered_keys[: self._buffered]
        self._buffered = 0
        memories, order = memories.sort()
        keys = keys[order]
        touched, counts = memories.unique_consecutive(return_counts=True)
        row = torch.repeat_interleave(torch.arange(len(touched), device=keys.device), counts)
        column = torch.arange(len(keys), device=keys.device) - (counts.cumsum(0) - counts)[row]
        # In steps, because one memory with many new keys would make the table wide for all of them.
        width = max(16, self.keys.shape[1])
        for start in range(0, int(counts.max()) if len(counts) else 0, width):
            some = (column >= start) & (column < start + width)
            self._merge_some(*_table(touched, row[some], column[some] - start, keys[some]))

    def _merge_some(self, memories: Int[Tensor, "some"] | slice, fresh: Int[Tensor, "some few"]) -> None:
        self.keys[memories] = self.highest(torch.cat([self.keys[memories], fresh], 1), memories)


def _table(touched: Tensor, row: Tensor, column: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """The memories that have keys, and a table of these keys, padded with empty ones."""
    present = row.unique_consecutive()
    fresh = torch.full((len(touched), int(column.max()) + 1), EMPTY, dtype=torch.int64, device=keys.device)
    fresh[row, column] = keys
    return touched[present], fresh[present]


def are_many(candidates: Tensor) -> bool:
    """Whether so many keys (rows × memories) are candidates that `merge_rows` is faster than `offer`."""
    rows, memories = candidates.shape
    on_cpu = candidates.device.type == "cpu"  # where numpy counts faster
    count = int(np.count_nonzero(candidates.numpy()) if on_cpu else candidates.count_nonzero())
    return count > memories * (1 / 2 + _MANY * rows)


def places(candidates: Tensor) -> tuple[Tensor, Tensor]:
    """The rows and columns of the elements that are not 0. On a CPU numpy finds few among many several times faster."""
    if candidates.device.type != "cpu":
        row, column = candidates.nonzero().unbind(1)
        return row, column
    flat = torch.from_numpy(np.flatnonzero(candidates.bool().numpy()))
    return flat // candidates.shape[1], flat % candidates.shape[1]
