"""The running top t: the prefixes with the highest coefficients so far, for every memory."""

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.search.key_table import KeyTable, are_many, places
from ffscope.search.trigger_keys import EMPTY, LEAST, coefficients_of, pack

_CHUNK_CPU, _CHUNK_GPU = 2**17, 2**24  # coefficients processed at once: they should fit into a CPU's cache


class RunningTop(KeyTable):
    """The t highest coefficients of every memory, above 0, and their prefixes."""

    def __init__(self, memories: int, top: int, device: torch.device) -> None:
        super().__init__(memories, top, device)
        self._chunk = _CHUNK_CPU if device.type == "cpu" else _CHUNK_GPU
        self.threshold = torch.empty(memories, device=device)
        self.skip_below(torch.full((memories,), LEAST, device=device))

    def skip_below(self, keys: Int[Tensor, "memory"]) -> None:
        """Ignore candidates with a lower coefficient than that of a memory's key here."""
        self._floor = keys.clamp_min(LEAST)
        self._update_threshold()

    def load(self, keys: Int[Tensor, "memory top"]) -> None:
        """Restore the keys of a checkpoint."""
        self.keys.copy_(keys)
        self._update_threshold()

    def update(
        self,
        best: Float[Tensor, "batch some"],
        position: Int[Tensor, "batch some"],
        first_prefixes: Int[Tensor, "batch"],
        columns: slice = slice(0, None),
    ) -> bool:
        """Add the best prefix of each sentence for the memories in `columns`; whether many of them were candidates."""
        high = best >= self.threshold[columns]
        many = are_many(high)
        if many:
            width = max(1, self._chunk // len(best))
            for start in range(0, best.shape[1], width):
                some = slice(start, start + width)
                keys = pack(best[:, some], first_prefixes[:, None] + position[:, some])
                self.merge_rows(keys.where(high[:, some], EMPTY), columns.start + start)
            self._update_threshold(columns)
            return many
        row, memory = places(high)
        keys = pack(best[row, memory], first_prefixes[row] + position[row, memory])
        self.offer(memory + columns.start, keys)
        return many

    def update_rows(
        self, coefficients: Float[Tensor, "rows some"], prefixes: Int[Tensor, "rows"], columns: slice
    ) -> None:
        """Add every prefix, for the memories in `columns`."""
        rows = max(1, _CHUNK_GPU // coefficients.shape[1])
        for chunk, numbers in zip(coefficients.split(rows), prefixes.split(rows), strict=True):
            self.update(chunk.float(), numbers.new_zeros(()).expand(chunk.shape), numbers, columns)

    def merge(self) -> None:
        super().merge()
        self._update_threshold()

    def _update_threshold(self, columns: slice = slice(None)) -> None:
        """The t-th highest coefficient of every memory, which candidates must reach; if it has fewer, the least that counts."""
        self.threshold[columns] = coefficients_of(torch.maximum(self.keys[columns, -1], self._floor[columns]))
