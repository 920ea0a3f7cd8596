"""A uniform sample of the prefixes on which each memory fires, independent of their order."""

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.search.key_table import KeyTable, are_many, places
from ffscope.search.trigger_keys import EMPTY, LAST_PREFIX, pack, prefixes_of

_MASK = 2**31 - 1


def mix(numbers: Int[Tensor, "*at"], seed: int = 0) -> Int[Tensor, "*at"]:
    """A 31-bit hash of numbers, the same on every machine."""
    mixed = (numbers + 0x9E3779B9 * (seed + 1)) & 0xFFFFFFFF
    for factor in (0x7FEB352D, 0x846CA68B):
        mixed = ((mixed ^ (mixed >> 16)) * factor) & 0xFFFFFFFF
    return (mixed ^ (mixed >> 15)) & _MASK


def _priority(prefixes: Tensor, names: Tensor) -> Tensor:
    """A prefix's priority for a memory. The product prevents a prefix with an isolated hash from being drawn more often."""
    return ((prefixes ^ names) * -0x61C88647).bitwise_and_(_MASK)


class RunningSample(KeyTable):
    """A few firing prefixes of every memory: those with the highest priority, which differs between memories."""

    def __init__(self, names: Int[Tensor, "memory"], size: int, seed: int) -> None:
        """`names` are numbers that no two memories of a model share."""
        super().__init__(len(names), size, names.device)
        self.seed = seed
        self._names = mix(names, seed).int()
        self.threshold = torch.empty_like(self._names)
        self.skip_below(torch.full((len(names),), -1, device=names.device))

    def rank(self, keys: Int[Tensor, "some few"], memories: Int[Tensor, "some"] | slice) -> Int[Tensor, "some few"]:
        """The ranks of the keys of some memories; -1 for empty ones. Different keys of a memory have different ranks."""
        prefixes = prefixes_of(keys)
        priority = _priority(mix(prefixes, self.seed).int(), self._names[memories][:, None]).long()
        return torch.where(keys == EMPTY, -1, (priority << 32) | (LAST_PREFIX - prefixes))

    def highest(
        self, keys: Int[Tensor, "some few"], memories: Int[Tensor, "some"] | slice
    ) -> Int[Tensor, "some width"]:
        return keys.gather(1, self.rank(keys, memories).topk(self.keys.shape[1], dim=1).indices)

    def ranks(self) -> Int[Tensor, "memory few"]:
        """The ranks of the sampled keys."""
        return self.rank(self.keys, slice(None))

    def skip_below(self, ranks: Int[Tensor, "memory"]) -> None:
        """Ignore candidates with a lower priority than that of a memory's rank here."""
        self._floor = ranks
        self._update_threshold()

    def load(self, keys: Int[Tensor, "memory few"]) -> None:
        """Restore the keys of a checkpoint."""
        self.keys.copy_(keys)
        self._update_threshold()

    def update(self, coefficients: Float[Tensor, "rows some"], prefixes: Int[Tensor, "rows"], columns: slice) -> None:
        """Add prefixes, with the coefficients that the memories in `columns` have there."""
        priority = _priority(mix(prefixes, self.seed).int()[:, None], self._names[columns])
        # Integers (a positive float has positive bits), as torch compares to bool several times more slowly.
        fires = coefficients.view(torch.int32).clamp(0, 1)
        candidates = priority.ge_(self.threshold[columns]).mul_(fires)
        if are_many(candidates):
            keys = pack(coefficients, prefixes[:, None].expand(coefficients.shape))
            self.merge_rows(keys.where(candidates > 0, EMPTY), columns.start)
            self._update_threshold(columns)
            return
        row, memory = places(candidates)
        if len(row):
            self.offer(memory + columns.start, pack(coefficients[row, memory], prefixes[row]))

    def merge(self) -> None:
        super().merge()
        self._update_threshold()

    def _update_threshold(self, columns: slice = slice(None)) -> None:
        lowest = self.rank(self.keys[columns, -1:], columns)[:, 0]
        self.threshold[columns] = (torch.maximum(lowest, self._floor[columns]) >> 32).int()
