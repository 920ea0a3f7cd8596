"""Everything a search accumulates for its memories, batch by batch."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.options.search import Prefixes
from ffscope.search.best_prefixes import BestPrefixes
from ffscope.search.histogram import Histogram
from ffscope.search.sample import RunningSample
from ffscope.search.top import RunningTop

SAMPLE = 10
"""How many firing prefixes are sampled per memory."""
_BUFFER = 256  # picked prefixes that are buffered before they are added to the histograms
# Coefficients that are added to the histograms at once: they should fit into a CPU's cache.
_CHUNK_CPU, _CHUNK_GPU = 2**18, 2**24


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

    The memories are observed layer by layer. Coefficients are buffered in the precision that the model computes them in.
    """

    def __init__(
        self,
        names: Int[Tensor, "memory"],
        *,
        top: int,
        prefixes: Prefixes = "best",
        negative: bool = False,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """`names` are numbers that no two memories of a model share; `dtype` is the model's."""
        memories, device = len(names), names.device
        self.top = RunningTop(memories, top, device)
        self.low = RunningTop(memories, top, device) if negative else None
        self.sample = RunningSample(names, SAMPLE, seed)
        self.histogram = Histogram(memories, device)
        self._tops = [self.top] if self.low is None else [self.top, self.low]
        self._best = [BestPrefixes(top, dtype) for top in self._tops] if prefixes == "best" else []
        self._maximum = torch.empty((1, memories), device=device)
        self._chunk = _CHUNK_CPU if device.type == "cpu" else _CHUNK_GPU
        self._buffered = 0
        self._picked = torch.empty((_BUFFER, memories), dtype=dtype, device=device)
        self._picked_prefixes = torch.empty(_BUFFER, dtype=torch.int64, device=device)

    def begin(self, batch: BatchInfo) -> None:
        """Call before a batch runs."""
        self._batch = batch
        self._rows = self._buffer_rows(batch.picked_prefixes)
        for best in self._best:
            best.begin(batch.first_prefixes)

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
        if self._picked.dtype not in (coefficients.dtype, torch.float32):
            self._widen()
        batch = self._batch
        unlisted = coefficients.shape[1] - batch.length
        listed = coefficients[:, unlisted:]
        picked = batch.picked_sentences * coefficients.shape[1] + batch.picked_positions + unlisted
        _copy_rows(coefficients.flatten(0, 1), picked, self._rows[:, columns])
        signed = [listed] if self.low is None else [listed, -listed]
        for best, values in zip(self._best, signed, strict=False):
            best.observe(values, columns)
        if self._best:
            return
        self._maximum[:, columns] = listed.amax((0, 1))
        numbers = (batch.first_prefixes[:, None] + torch.arange(batch.length, device=listed.device)).flatten()
        for top, values in zip(self._tops, signed, strict=True):
            top.update_rows(values.flatten(0, 1), numbers, columns)

    def _widen(self) -> None:
        """Buffer in float32 from now on, because some layer does not compute in the model's precision."""
        self._picked = self._picked.float()
        self._rows = self._picked[self._buffered : self._buffered + len(self._rows)]
        for best in self._best:
            best.widen()

    def end(self) -> None:
        """Call after a batch has run."""
        self.histogram.update(self._best[0].best if self._best else self._maximum, self._rows)
        for best in self._best:
            best.end()
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
            some = coefficients[:, columns].float()
            self.histogram.add(some, columns)
            self.sample.update(some, prefixes, columns)

    def state(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint stores and `merge` combines."""
        self._flush()
        for best in self._best:
            best.merge()
        tables = {"top": self.top, "sample": self.sample, **({"low": self.low} if self.low else {})}
        for table in tables.values():
            table.merge()
        keys = {name: table.keys for name, table in tables.items()}
        return {**self.histogram.state(), **keys, "sample_rank": self.sample.ranks()}

    def skip_below(self, state: dict[str, Tensor]) -> None:
        """Skip what cannot be in the merged state of this search and one of other batches. Lists then need not fill anew."""
        self.top.skip_below(state["top"][:, -1])
        self.sample.skip_below(state["sample_rank"][:, -1])
        if self.low is not None:
            self.low.skip_below(state["low"][:, -1])

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
