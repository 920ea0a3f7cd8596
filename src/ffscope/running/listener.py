"""All that is kept of the memories that share one output projection."""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.running.sample import RunningSample
from ffscope.running.tally import Tally
from ffscope.running.top import RunningTop

SAMPLE = 10
"""How many firing prefixes are sampled for every memory."""
_TOGETHER = 256  # picked prefixes that are sorted into the histograms at once
Prefixes = Literal["best", "all"]


class Passing(NamedTuple):
    """The batch that passes: the number of each sentence's first prefix, the sentences' length, and some of its prefixes."""

    first_prefixes: Int[Tensor, "batch"]
    length: int
    picked_sentences: Int[Tensor, "rows"]  # in the batch
    picked_positions: Int[Tensor, "rows"]
    picked_prefixes: Int[Tensor, "rows"]  # their numbers


class Listener:
    """The running top t of some memories, of their lowest coefficients if wanted, a sample, and counts."""

    def __init__(
        self, names: Int[Tensor, "memory"], *, top: int, prefixes: Prefixes = "best", negative: bool = False, seed: int = 0
    ) -> None:
        """`names` are numbers that no two memories of a model share."""
        self.prefixes = prefixes
        self.top = RunningTop(len(names), top, names.device)
        self.low = RunningTop(len(names), top, names.device) if negative else None
        self.sample = RunningSample(names, SAMPLE, seed)
        self.tally = Tally(len(names), names.device)
        self._picked: list[tuple[Tensor, Tensor]] = []

    def hear(self, coefficients: Float[Tensor, "batch pos memory"], passing: Passing) -> None:
        """Take in one batch. What stands before the sentences, BOS, is no prefix."""
        unlisted = coefficients.shape[1] - passing.length
        listed = coefficients[:, unlisted:]
        best = listed.amax(1).float()
        self.tally.watch(best)
        if self.prefixes == "all":
            listed = listed.reshape(-1, 1, listed.shape[-1])
            best = listed[:, 0].float()
            offsets = torch.arange(passing.length, device=best.device)
            passing = passing._replace(first_prefixes=(passing.first_prefixes[:, None] + offsets).flatten())
        self.top.watch(listed, best, passing.first_prefixes)
        if self.low is not None:
            self.low.watch(-listed, -listed.amin(1).float(), passing.first_prefixes)

    def pick(self, coefficients: Float[Tensor, "batch pos memory"], passing: Passing) -> None:
        """Take in the picked prefixes of a batch: the histogram and the sample are made of them."""
        unlisted = coefficients.shape[1] - passing.length
        picked = coefficients[passing.picked_sentences, passing.picked_positions + unlisted].float()
        self._picked.append((picked, passing.picked_prefixes))
        if sum(len(prefixes) for _, prefixes in self._picked) >= _TOGETHER:
            self._sort()

    def _sort(self) -> None:
        """Put the picked prefixes where they belong: many at once, since each time has its own cost."""
        if self._picked:
            coefficients, prefixes = (torch.cat(same) for same in zip(*self._picked, strict=True))
            self._picked = []
            self.tally.sort(coefficients)
            self.sample.watch(coefficients, prefixes)

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps."""
        self._sort()
        tables = {"top": self.top, "sample": self.sample, **({"low": self.low} if self.low else {})}
        for table in tables.values():
            table.merge()
        return {**self.tally.state(), **{name: table.keys for name, table in tables.items()}}

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a checkpoint."""
        self.tally.load(state)
        self.top.load(state["top"])
        self.sample.load(state["sample"])
        if self.low is not None:
            self.low.load(state["low"])
