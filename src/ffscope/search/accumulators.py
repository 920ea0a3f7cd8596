"""All that is kept of some memories while batches pass."""

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
"""How many firing prefixes are sampled for every memory."""
_TOGETHER = 256  # picked prefixes that wait to be sorted into the histograms
_ON_CPU, _ELSEWHERE = 2**20, 2**24  # coefficients that are sorted together


class BatchInfo(NamedTuple):
    """The batch that passes: the number of each sentence's first prefix, the sentences' length, and some of its prefixes."""

    first_prefixes: Int[Tensor, "batch"]
    length: int
    picked_sentences: Int[Tensor, "rows"]  # in the batch
    picked_positions: Int[Tensor, "rows"]
    picked_prefixes: Int[Tensor, "rows"]  # their numbers


class Accumulators:
    """The running top t of memories, of their lowest coefficients if wanted, a sample, and counts.

    The memories of a batch are observed some at a time, layer by layer. On a GPU nothing may wait for a result in the middle of a
    pass, so there the highest coefficients and their positions are put by, and looked through when the batch is over.
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
        self._at_the_end = device.type != "cpu" and prefixes == "best"
        self._at_once = _ON_CPU if device.type == "cpu" else _ELSEWHERE
        self._waiting = 0
        self._picked = torch.empty((_TOGETHER, memories), device=device)
        self._picked_prefixes = torch.empty(_TOGETHER, dtype=torch.int64, device=device)
        self._highest = torch.empty((0, memories), device=device)

    def begin(self, passing: BatchInfo) -> None:
        """A batch is about to pass."""
        self._passing = passing
        batch, memories, device = len(passing.first_prefixes), len(self.top.keys), self.top.keys.device
        # Room is made once and used again: allocations of many sizes would scatter the memory.
        if len(self._highest) < batch:
            self._highest = torch.empty((batch, memories), device=device)
        self._best = self._highest[:batch]
        self._rows = self._room(passing.picked_prefixes)
        if self._at_the_end:
            self._position = torch.empty((batch, memories), dtype=torch.int16, device=device)
            self._lowest = (torch.empty_like(self._best), torch.empty_like(self._position)) if self.low else None

    def _room(self, prefixes: Tensor) -> Tensor:
        """Where the coefficients at the picked prefixes of a batch are put."""
        if self._waiting + len(prefixes) > len(self._picked):
            self._sort()
        if len(prefixes) > len(self._picked):
            self._picked = self._picked.new_empty((len(prefixes), self._picked.shape[1]))
            self._picked_prefixes = self._picked_prefixes.new_empty(len(prefixes))
        place = slice(self._waiting, self._waiting + len(prefixes))
        self._picked_prefixes[place] = prefixes
        return self._picked[place]

    def observe(self, coefficients: Float[Tensor, "batch pos some"], columns: slice) -> None:
        """The coefficients of some of the memories. What stands before the sentences, BOS, is no prefix."""
        passing = self._passing
        unlisted = coefficients.shape[1] - passing.length
        listed = coefficients[:, unlisted:]
        self._rows[:, columns] = coefficients[passing.picked_sentences, passing.picked_positions + unlisted].float()
        if self._at_the_end:
            highest(listed, self._best[:, columns], self._position[:, columns])
            if self._lowest:
                highest(-listed, self._lowest[0][:, columns], self._lowest[1][:, columns])
            return
        best = listed.amax(1).float()
        self._best[:, columns] = best
        if self._prefixes == "best":
            self.top.watch(listed, best, passing.first_prefixes, columns)
            if self.low is not None:
                self.low.watch(-listed, -listed.amin(1).float(), passing.first_prefixes, columns)
            return
        numbers = (passing.first_prefixes[:, None] + torch.arange(passing.length, device=best.device)).flatten()
        self.top.watch_rows(listed.flatten(0, 1), numbers, columns)
        if self.low is not None:
            self.low.watch_rows(-listed.flatten(0, 1), numbers, columns)

    def end(self) -> None:
        """The batch has passed."""
        self.histogram.watch(self._best, self._rows)
        if self._at_the_end:
            self.top.watch_all(self._best, self._position, self._passing.first_prefixes)
            if self.low is not None and self._lowest is not None:
                self.low.watch_all(*self._lowest, self._passing.first_prefixes)
        self._waiting += len(self._rows)

    def _sort(self) -> None:
        """Put the picked prefixes where they belong: many at once, since each time has its own cost."""
        if not self._waiting:
            return
        coefficients, prefixes = self._picked[: self._waiting], self._picked_prefixes[: self._waiting]
        self._waiting = 0
        width = max(1, self._at_once // len(prefixes))
        for start in range(0, coefficients.shape[1], width):
            columns = slice(start, min(start + width, coefficients.shape[1]))
            self.histogram.sort(coefficients[:, columns], columns)
            self.sample.watch(coefficients[:, columns], prefixes, columns)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps, and `merge` takes."""
        self._sort()
        tables = {"top": self.top, "sample": self.sample, **({"low": self.low} if self.low else {})}
        for table in tables.values():
            table.merge()
        keys = {name: table.keys for name, table in tables.items()}
        return {**self.histogram.state(), **keys, "sample_rank": self.sample.ranks()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        self.histogram.load(state)
        self.top.load(state["top"])
        self.sample.load(state["sample"])
        if self.low is not None:
            self.low.load(state["low"])
