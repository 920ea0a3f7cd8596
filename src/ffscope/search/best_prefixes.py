"""The best prefix of each sentence for every memory, buffered before it is merged into a running top."""

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.search.highest import candidate_positions, highest
from ffscope.search.top import RunningTop

_BUFFER = 2**21  # coefficients that a CPU buffers: each merge has a fixed cost


class BestPrefixes:
    """Buffers the highest coefficients of each sentence and their positions, which are observed layer by layer.

    A GPU must not be synchronised in the middle of a pass, so it stores all positions and merges at the end of the batch. A CPU
    merges several batches at once, and stores only the positions of candidates once they are few.
    """

    def __init__(self, top: RunningTop, dtype: torch.dtype) -> None:
        self.top, self._dtype = top, dtype
        memories, device = top.keys.shape[0], top.keys.device
        self._at_once = _BUFFER // memories if device.type == "cpu" else 0
        self._allocate(self._at_once)
        self._buffered = 0
        self._all_positions = True

    def _allocate(self, rows: int) -> None:
        memories, device = self.top.keys.shape[0], self.top.keys.device
        self._best = torch.empty((rows, memories), dtype=self._dtype, device=device)
        self._position = torch.empty((rows, memories), dtype=torch.int16, device=device)
        self._first_prefixes = torch.empty(rows, dtype=torch.int64, device=device)

    def begin(self, first_prefixes: Int[Tensor, "batch"]) -> None:
        """Call before a batch runs."""
        sentences = len(first_prefixes)
        if self._buffered + sentences > len(self._best):
            self.merge()
        # Buffers are reused: allocations of many sizes would fragment the memory.
        if sentences > len(self._best):
            self._allocate(sentences)
        self._rows = slice(self._buffered, self._buffered + sentences)
        self._first_prefixes[self._rows] = first_prefixes

    def widen(self) -> None:
        """Store coefficients in float32 from now on."""
        self._dtype = torch.float32
        self._best = self._best.float()

    @property
    def best(self) -> Float[Tensor, "batch memory"]:
        """The highest coefficients in the sentences of this batch."""
        return self._best[self._rows]

    def observe(self, coefficients: Float[Tensor, "batch pos some"], columns: slice) -> None:
        """Store the highest coefficients of some memories in each sentence of the batch."""
        best, position = self._best[self._rows, columns], self._position[self._rows, columns]
        if self._all_positions:
            highest(coefficients, best, position)
        else:
            best.copy_(coefficients.amax(1))
            candidate_positions(coefficients, best, self.top.threshold[columns], position)

    def end(self) -> None:
        """Call after a batch has run."""
        self._buffered = self._rows.stop
        if self._buffered >= self._at_once:
            self.merge()

    def merge(self) -> None:
        """Merge the buffered prefixes into the running top."""
        if not self._buffered:
            return
        rows, self._buffered = slice(self._buffered), 0
        many = self.top.update(self._best[rows], self._position[rows], self._first_prefixes[rows])
        self._all_positions = many or self._best.device.type != "cpu"
