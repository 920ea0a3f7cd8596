"""The running top t: for every memory the prefixes with the highest coefficients so far."""

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.search.key_table import Table
from ffscope.search.trigger_keys import coefficients_of, pack

_MOST = 1 / 2  # share of candidates above which finding all positions in one go is the quicker way
_AT_ONCE = 2**24  # coefficients looked at together


class RunningTop(Table):
    """The t highest coefficients of every memory and their prefixes; only coefficients above 0 count."""

    def __init__(self, memories: int, top: int, device: torch.device) -> None:
        super().__init__(memories, top, device)
        self._fresh = True  # whether every prefix may still be among the highest
        self._see_least()

    def load(self, keys: Int[Tensor, "memory top"]) -> None:
        """Go on from keys that were kept before."""
        self.keys.copy_(keys)
        self._fresh = False
        self._see_least()

    def watch(
        self,
        coefficients: Float[Tensor, "batch pos some"],
        best: Float[Tensor, "batch some"],
        first_prefixes: Int[Tensor, "batch"],
        columns: slice,
    ) -> None:
        """Let the best prefix of each sentence take part, for the memories in `columns`; positions are sought where needed."""
        high = best >= self.least[columns]
        sentence, memory = high.nonzero().unbind(1)
        if not len(sentence):
            return
        # Both give the first of several equal positions.
        if len(sentence) > _MOST * high.numel():
            position = coefficients.max(1).indices[sentence, memory]
        else:
            position = coefficients[sentence, :, memory].argmax(1)
        self.offer(memory + columns.start, pack(best[sentence, memory], first_prefixes[sentence] + position))

    def watch_rows(
        self, coefficients: Float[Tensor, "rows some"], prefixes: Int[Tensor, "rows"], columns: slice
    ) -> None:
        """Let every prefix take part, for the memories in `columns`."""
        rows = max(1, _AT_ONCE // coefficients.shape[1])
        for some, numbers in zip(coefficients.split(rows), prefixes.split(rows), strict=True):
            self.watch(some[:, None], some.float(), numbers, columns)

    def watch_all(
        self,
        best: Float[Tensor, "batch memory"],
        position: Int[Tensor, "batch memory"],
        first_prefixes: Int[Tensor, "batch"],
    ) -> None:
        """Let the best prefix of each sentence take part, for all memories, given the positions."""
        if self._fresh:
            self._offer_flood(best, position, first_prefixes)
            return
        sentence, memory = (best >= self.least).nonzero().unbind(1)
        where = first_prefixes[sentence] + position[sentence, memory]
        self.offer(memory, pack(best[sentence, memory], where))

    def _offer_flood(self, best: Tensor, position: Tensor, first_prefixes: Tensor) -> None:
        """Offer of each memory only the batch's own top t: the others cannot stay."""
        few = min(self.keys.shape[1], len(best))
        columns = max(1, _AT_ONCE // len(best))
        for start in range(0, best.shape[1], columns):
            some = slice(start, start + columns)
            keys = pack(best[:, some].clamp_min(0), first_prefixes[:, None] + position[:, some])
            keys = keys.where(best[:, some] > 0, 0).T.topk(few, dim=1).values
            row, rank = (keys > 0).nonzero().unbind(1)
            self.offer(row + start, keys[row, rank])
        self.merge()

    def merge(self) -> None:
        super().merge()
        self._fresh = False
        self._see_least()

    def _see_least(self) -> None:
        """The t-th best coefficient of every memory, which a candidate must reach; the least number above 0 where there is room."""
        self.least = coefficients_of(self.keys[:, -1].clamp_min(1 << 32))
