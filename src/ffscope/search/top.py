"""The running top t: the prefixes with the highest coefficients so far, for every memory."""

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.search.highest import first_positions
from ffscope.search.key_table import KeyTable, are_many, places
from ffscope.search.trigger_keys import EMPTY, coefficients_of, pack

_CHUNK = 2**24  # coefficients processed at once


class RunningTop(KeyTable):
    """The t highest coefficients of every memory, above 0, and their prefixes."""

    def __init__(self, memories: int, top: int, device: torch.device) -> None:
        super().__init__(memories, top, device)
        self.threshold = torch.empty(memories, device=device)
        self._update_threshold()

    def load(self, keys: Int[Tensor, "memory top"]) -> None:
        """Restore the keys of a checkpoint."""
        self.keys.copy_(keys)
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
        if are_many(high):
            self._merge_best(best, first_positions(coefficients, best), first_prefixes, high, columns)
            return
        sentence, memory = places(high)
        if len(sentence):
            position = coefficients[sentence, :, memory].argmax(1)  # the first of several equal maxima
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
        high = best >= self.threshold
        if are_many(high):
            width = max(1, _CHUNK // len(best))
            for start in range(0, best.shape[1], width):
                some = slice(start, start + width)
                self._merge_best(best[:, some], position[:, some], first_prefixes, high[:, some], some)
            return
        sentence, memory = places(high)
        where = first_prefixes[sentence] + position[sentence, memory]
        self.offer(memory, pack(best[sentence, memory], where))

    def _merge_best(self, best: Tensor, position: Tensor, first_prefixes: Tensor, high: Tensor, columns: slice) -> None:
        """Merge all candidates (`high`) for the memories in `columns`."""
        keys = pack(best, first_prefixes[:, None] + position)
        self.merge_rows(keys.where(high, EMPTY), columns)
        self._update_threshold(columns)

    def merge(self) -> None:
        super().merge()
        self._update_threshold()

    def _update_threshold(self, columns: slice = slice(None)) -> None:
        """The t-th highest coefficient of every memory, which candidates must reach; the least positive number if it has fewer."""
        self.threshold[columns] = coefficients_of(self.keys[columns, -1].clamp_min(1 << 32))
