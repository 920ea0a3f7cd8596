"""A uniform sample of the prefixes on which each memory fires, the same whatever order they come in."""

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.search.key_table import Table
from ffscope.search.trigger_keys import EMPTY, LAST_PREFIX, pack, prefixes_of

_MASK = 2**31 - 1


def mix(numbers: Int[Tensor, "*at"], seed: int = 0) -> Int[Tensor, "*at"]:
    """31 bits that look random, the same for the same number and seed on every machine."""
    mixed = (numbers + 0x9E3779B9 * (seed + 1)) & 0xFFFFFFFF
    for factor in (0x7FEB352D, 0x846CA68B):
        mixed = ((mixed ^ (mixed >> 16)) * factor) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 15)) & _MASK


def _chance(prefixes: Tensor, names: Tensor) -> Tensor:
    """A prefix's chance with a memory. The product keeps a prefix that lies apart from others from being drawn more often."""
    return ((prefixes ^ names) * -0x61C88647).bitwise_and_(_MASK)


class RunningSample(Table):
    """A few firing prefixes of every memory: those with the highest chances, which are others for each memory."""

    def __init__(self, names: Int[Tensor, "memory"], size: int, seed: int) -> None:
        """`names` are numbers that no two memories of a model share."""
        super().__init__(len(names), size, names.device)
        self.seed = seed
        self._names = mix(names, seed).int()
        self._see_least()

    def rank(self, keys: Int[Tensor, "some few"], memories: Int[Tensor, "some"]) -> Int[Tensor, "some few"]:
        prefixes = prefixes_of(keys)
        chance = _chance(mix(prefixes, self.seed).int(), self._names[memories, None]).long()
        return torch.where(keys == EMPTY, -1, (chance << 32) | (LAST_PREFIX - prefixes))

    def ranks(self) -> Int[Tensor, "memory few"]:
        """What the keys that are kept are ordered by; -1 where there is none."""
        return self.rank(self.keys, torch.arange(len(self.keys), device=self.keys.device))

    def load(self, keys: Int[Tensor, "memory few"]) -> None:
        """Go on from keys that were kept before."""
        self.keys.copy_(keys)
        self._see_least()

    def watch(self, coefficients: Float[Tensor, "rows some"], prefixes: Int[Tensor, "rows"], columns: slice) -> None:
        """Let some prefixes take part, with the coefficients that the memories in `columns` have there."""
        chance = _chance(mix(prefixes, self.seed).int()[:, None], self._names[columns])
        row, memory = ((chance >= self.least[columns]) & (coefficients > 0)).nonzero().unbind(1)
        if len(row):
            self.offer(memory + columns.start, pack(coefficients[row, memory], prefixes[row]))

    def merge(self) -> None:
        super().merge()
        self._see_least()

    def _see_least(self) -> None:
        everyone = torch.arange(len(self.keys), device=self.keys.device)
        self.least = (self.rank(self.keys[:, -1:], everyone)[:, 0] >> 32).int()
