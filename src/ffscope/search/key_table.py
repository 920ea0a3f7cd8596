"""The best few keys of every memory, under an order that is total: whatever comes when, the same ones stay."""

import torch
from torch import Tensor

from ffscope.axes import Int
from ffscope.search.trigger_keys import EMPTY


class Table:
    """The `width` keys of every memory that rank highest. Subclasses say what a key's rank is; here it is the key itself."""

    def __init__(self, memories: int, width: int, device: torch.device) -> None:
        self.keys = torch.full((memories, width), EMPTY, dtype=torch.int64, device=device)
        # A merge costs much the same for one key of a memory as for several, so they wait for each other. The room in which they
        # do is made once: small things that live long, between large ones that do not, would scatter the memory.
        room = max(1024, self.keys.numel() // 2)
        self._waiting_memories = torch.empty(room, dtype=torch.int64, device=device)
        self._waiting_keys = torch.empty(room, dtype=torch.int64, device=device)
        self._waiting = 0

    def rank(self, keys: Int[Tensor, "some few"], memories: Int[Tensor, "some"]) -> Int[Tensor, "some few"]:
        """What the keys of some memories are ordered by; no two different keys of a memory rank the same."""
        return keys

    def offer(self, memories: Int[Tensor, "new"], keys: Int[Tensor, "new"]) -> None:
        """Let some keys take part, now or when enough others wait with them."""
        taken = 0
        while taken < len(keys):
            some = min(len(keys) - taken, len(self._waiting_keys) - self._waiting)
            place = slice(self._waiting, self._waiting + some)
            self._waiting_memories[place] = memories[taken : taken + some]
            self._waiting_keys[place] = keys[taken : taken + some]
            self._waiting += some
            taken += some
            if self._waiting == len(self._waiting_keys):
                self.merge()

    def merge(self) -> None:
        """Let those that wait take their places."""
        if not self._waiting:
            return
        memories, keys = self._waiting_memories[: self._waiting], self._waiting_keys[: self._waiting]
        self._waiting = 0
        memories, order = memories.sort()
        keys = keys[order]
        touched, counts = memories.unique_consecutive(return_counts=True)
        row = torch.repeat_interleave(torch.arange(len(touched), device=keys.device), counts)
        column = torch.arange(len(keys), device=keys.device) - (counts.cumsum(0) - counts)[row]
        # By and by, lest one memory with many new keys makes a wide table for all of them.
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
