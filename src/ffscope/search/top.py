"""The running top t: the prefixes with the highest coefficients so far, for every memory."""

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.search.key_table import KeyTable
from ffscope.search.trigger_keys import coefficients_of, pack

_MANY = 1 / 2  # share of candidates above which computing all positions at once is faster
_CHUNK = 2**24  # coefficients processed at once


class RunningTop(KeyTable):
    """The t highest coefficients of every memory, above 0, and their prefixes."""

    def __init__(self, memories: int, top: int, device: torch.device) -> None:
        super().__init__(memories, top, device)
        self._empty = True  # nothing merged yet: every prefix may be among the highest
        self._update_threshold()

    def load(self, keys: Int[Tensor, "memory top"]) -> None:
        """Restore the keys of a checkpoint."""
        self.keys.copy_(keys)
        self._empty = False
        self._update_threshold()

    def update(
        self,
        coefficients: Float[Tensor, "batch pos some"],
        best: Float[Tensor, "batch some"],
        first_prefixes: Int[Tensor, "batch"],
        columns: slice,
    ) -> None:
        """Add the best prefix of each sentence, for the memories in `columns`; positions are computed only for candidates."""
        high = best >= self.threshold[columns]
        sentence, memory = high.nonzero().unbind(1)
        if not len(sentence):
            return
        # Both give the first position of several equal maxima.
        if len(sentence) > _MANY * high.numel():
            position = coefficients.max(1).indices[sentence, memory]
        else:
            position = coefficients[sentence, :, memory].argmax(1)
        self.offer(memory + columns.start, pack(best[sentence, memory], first_prefixes[sentence] + position))

    def update_rows(
        self, coefficients: Float[Tensor, "rows some"], prefixes: Int[Tensor, "rows"], columns: slice
    ) -> None:
        """Add every prefix, for the memories in `columns`."""
        rows = max(1, _CHUNK // coefficients.shape[1])
        for chunk, numbers in zip(coefficients.split(rows), prefixes.split(rows), strict=True):
            self.update(chunk[:, None], chunk.float(), numbers, columns)

    def update_all(
        self,
        best: Float[Tensor, "batch memory"],
        position: Int[Tensor, "batch memory"],
        first_prefixes: Int[Tensor, "batch"],
    ) -> None:
        """Add the best prefix of each sentence for all memories, with known positions."""
        if self._empty:
            self._offer_batch_top(best, position, first_prefixes)
            return
        sentence, memory = (best >= self.threshold).nonzero().unbind(1)
        where = first_prefixes[sentence] + position[sentence, memory]
        self.offer(memory, pack(best[sentence, memory], where))

    def _offer_batch_top(self, best: Tensor, position: Tensor, first_prefixes: Tensor) -> None:
        """Add only each memory's top t of the batch: the others cannot stay in the table."""
        few = min(self.keys.shape[1], len(best))
        columns = max(1, _CHUNK // len(best))
        for start in range(0, best.shape[1], columns):
            some = slice(start, start + columns)
            keys = pack(best[:, some].clamp_min(0), first_prefixes[:, None] + position[:, some])
            keys = keys.where(best[:, some] > 0, 0).T.topk(few, dim=1).values
            row, rank = (keys > 0).nonzero().unbind(1)
            self.offer(row + start, keys[row, rank])
        self.merge()

    def merge(self) -> None:
        super().merge()
        self._empty = False
        self._update_threshold()

    def _update_threshold(self) -> None:
        """The t-th highest coefficient of every memory, which candidates must reach; the least positive number if it has fewer."""
        self.threshold = coefficients_of(self.keys[:, -1].clamp_min(1 << 32))
