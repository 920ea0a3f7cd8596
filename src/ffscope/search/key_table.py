"""The highest-ranked keys of every memory under a total order, so the result does not depend on the order of arrival."""

import torch
from torch import Tensor

from ffscope.axes import Int
from ffscope.search.trigger_keys import EMPTY


class KeyTable:
    """The `width` highest-ranked keys of every memory. A key is its own rank; subclasses may define another."""

    def __init__(self, memories: int, width: int, device: torch.device) -> None:
        self.keys = torch.full((memories, width), EMPTY, dtype=torch.int64, device=device)
        # Merging one key of a memory costs about as much as merging several, so new keys are buffered. The buffers are allocated
        # once: small long-lived allocations among large short-lived ones would fragment the memory.
        size = max(1024, self.keys.numel() // 2)
        self._buffered_memories = torch.empty(size, dtype=torch.int64, device=device)
        self._buffered_keys = torch.empty(size, dtype=torch.int64, device=device)
        self._buffered = 0

    def rank(self, keys: Int[Tensor, "some few"], memories: Int[Tensor, "some"]) -> Int[Tensor, "some few"]:
        """The ranks of the keys of some memories; different keys of a memory have different ranks."""
        return keys

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
        width = max(64, self.keys.shape[1])
        for start in range(0, int(counts.max()) if len(counts) else 0, width):
            some = (column >= start) & (column < start + width)
            self._merge_some(touched, row[some], column[some] - start, keys[some])

    def _merge_some(self, touched: Tensor, row: Tensor, column: Tensor, keys: Tensor) -> None:
        present = row.unique_consecutive()
        fresh = torch.full((len(touched), int(column.max()) + 1), EMPTY, dtype=torch.int64, device=keys.device)
        fresh[row, column] = keys
        at = touched[present]
        both = torch.cat([self.keys[at], fresh[present]], 1)
        best = self.rank(both, at).topk(self.keys.shape[1], dim=1).indices
        self.keys[at] = both.gather(1, best)
