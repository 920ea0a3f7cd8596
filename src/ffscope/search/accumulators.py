"""Everything a search accumulates for its memories, batch by batch."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.options.search import Prefixes
from ffscope.search.highest import highest
from ffscope.search.histogram import Histogram
from ffscope.search.sample import RunningSample
from ffscope.search.top import RunningTop

SAMPLE = 10
"""How many firing prefixes are sampled per memory."""
_BUFFER = 256  # picked prefixes that are buffered before they are added to the histograms
_CHUNK_CPU, _CHUNK_GPU = 2**20, 2**24  # coefficients that are added to the histograms at once


class BatchInfo(NamedTuple):
    """A batch: the number of each sentence's first prefix, the length of the sentences, and the prefixes picked for statistics."""

    first_prefixes: Int[Tensor, "batch"]
    length: int
    picked_sentences: Int[Tensor, "rows"]  # rows of the batch
    picked_positions: Int[Tensor, "rows"]
    picked_prefixes: Int[Tensor, "rows"]  # their numbers

    def moved(self, move: Callable[[Tensor], Tensor]) -> "BatchInfo":
        """The same with all tensors moved, such as to a device."""
        sentences, positions, prefixes = map(move, self[2:])
        return BatchInfo(move(self.first_prefixes), self.length, sentences, positions, prefixes)


class Accumulators:
    """For each memory the running top t, optionally that of its lowest coefficients, a sample of prefixes, and a histogram.

    The memories are observed layer by layer. A GPU must not be synchronised in the middle of a pass, so there the highest
    coefficients and their positions are stored, and evaluated at the end of the batch.
    """

    def __init__(
        self,
        names: Int[Tensor, "memory"],
        *,
        top: int,
        prefixes: Prefixes = "best",
        negative: bool = False,
        seed: int = 0,
    ) -> None:
        """`names` are numbers that no two memories of a model share."""
        memories, device = len(names), names.device
        self.top = RunningTop(memories, top, device)
        self.low = RunningTop(memories, top, device) if negative else None
        self.sample = RunningSample(names, SAMPLE, seed)
        self.histogram = Histogram(memories, device)
        self._prefixes = prefixes
        self._deferred = device.type != "cpu" and prefixes == "best"
        self._chunk = _CHUNK_CPU if device.type == "cpu" else _CHUNK_GPU
        self._buffered = 0
        self._picked = torch.empty((_BUFFER, memories), device=device)
        self._picked_prefixes = torch.empty(_BUFFER, dtype=torch.int64, device=device)
        self._highest = torch.empty((0, memories), device=device)

    def begin(self, batch: BatchInfo) -> None:
        """Call before a batch runs."""
        self._batch = batch
        sentences, memories, device = len(batch.first_prefixes), len(self.top.keys), self.top.keys.device
        # Buffers are reused: allocations of many sizes would fragment the memory.
        if len(self._highest) < sentences:
            self._highest = torch.empty((sentences, memories), device=device)
        self._best = self._highest[:sentences]
        self._rows = self._buffer_rows(batch.picked_prefixes)
        if self._deferred:
            self._position = torch.empty((sentences, memories), dtype=torch.int16, device=device)
            self._lowest = (torch.empty_like(self._best), torch.empty_like(self._position)) if self.low else None

    def _buffer_rows(self, prefixes: Tensor) -> Tensor:
        """A slice of the buffer for the coefficients at a batch's picked prefixes."""
        if self._buffered + len(prefixes) > len(self._picked):
            self._flush()
        if len(prefixes) > len(self._picked):
            self._picked = self._picked.new_empty((len(prefixes), self._picked.shape[1]))
            self._picked_prefixes = self._picked_prefixes.new_empty(len(prefixes))
        rows = slice(self._buffered, self._buffered + len(prefixes))
        self._picked_prefixes[rows] = prefixes
        return self._picked[rows]

    def observe(self, coefficients: Float[Tensor, "batch pos some"], columns: slice) -> None:
        """Add the coefficients of some memories. Tokens before the sentences (BOS) are not prefixes."""
        batch = self._batch
        unlisted = coefficients.shape[1] - batch.length
        listed = coefficients[:, unlisted:]
        picked = batch.picked_sentences * coefficients.shape[1] + batch.picked_positions + unlisted
        _copy_rows(coefficients.flatten(0, 1), picked, self._rows[:, columns])
        if self._deferred:
            highest(listed, self._best[:, columns], self._position[:, columns])
            if self._lowest:
                highest(-listed, self._lowest[0][:, columns], self._lowest[1][:, columns])
            return
        best = listed.amax(1).float()
        self._best[:, columns] = best
        if self._prefixes == "best":
            self.top.update(listed, best, batch.first_prefixes, columns)
            if self.low is not None:
                self.low.update(-listed, -listed.amin(1).float(), batch.first_prefixes, columns)
            return
        numbers = (batch.first_prefixes[:, None] + torch.arange(batch.length, device=best.device)).flatten()
        self.top.update_rows(listed.flatten(0, 1), numbers, columns)
        if self.low is not None:
            self.low.update_rows(-listed.flatten(0, 1), numbers, columns)

    def end(self) -> None:
        """Call after a batch has run."""
        self.histogram.update(self._best, self._rows)
        if self._deferred:
            self.top.update_all(self._best, self._position, self._batch.first_prefixes)
            if self.low is not None and self._lowest is not None:
                self.low.update_all(*self._lowest, self._batch.first_prefixes)
        self._buffered += len(self._rows)

    def _flush(self) -> None:
        """Add the buffered prefixes to the histograms and samples: many at once, since each call has a fixed cost."""
        if not self._buffered:
            return
        coefficients, prefixes = self._picked[: self._buffered], self._picked_prefixes[: self._buffered]
        self._buffered = 0
        width = max(1, self._chunk // len(prefixes))
        for start in range(0, coefficients.shape[1], width):
            columns = slice(start, min(start + width, coefficients.shape[1]))
            self.histogram.add(coefficients[:, columns], columns)
            self.sample.update(coefficients[:, columns], prefixes, columns)

    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint stores and `merge` combines."""
        self._flush()
        tables = {"top": self.top, "sample": self.sample, **({"low": self.low} if self.low else {})}
        for table in tables.values():
            table.merge()
        keys = {name: table.keys for name, table in tables.items()}
        return {**self.histogram.state(), **keys, "sample_rank": self.sample.ranks()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore the state of a checkpoint."""
        self.histogram.load(state)
        self.top.load(state["top"])
        self.sample.load(state["sample"])
        if self.low is not None:
            self.low.load(state["low"])


def _copy_rows(coefficients: Float[Tensor, "prefix some"], picked: Int[Tensor, "rows"], out: Tensor) -> None:
    """Copy some rows to `out`, if possible without a copy in between."""
    if coefficients.dtype == out.dtype:
        torch.index_select(coefficients, 0, picked, out=out)
    else:
        out.copy_(coefficients.index_select(0, picked))
