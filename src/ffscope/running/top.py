"""The running top t: for every memory the prefixes with the highest coefficients so far."""

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.running.keys import coefficients_of, pack
from ffscope.running.table import Table

_DENSE = 1 / 2  # share of candidates above which finding all positions in one go is the quicker way


class RunningTop(Table):
    """The t highest coefficients of every memory and their prefixes; only coefficients above 0 count."""

    def __init__(self, memories: int, top: int, device: torch.device) -> None:
        super().__init__(memories, top, device)
        self._see_least()

    def load(self, keys: Int[Tensor, "memory top"]) -> None:
        """Go on from keys that were kept before."""
        self.keys.copy_(keys)
        self._see_least()

    def watch(
        self,
        coefficients: Float[Tensor, "batch pos memory"],
        best: Float[Tensor, "batch memory"],
        first_prefixes: Int[Tensor, "batch"],
    ) -> None:
        """Take part in one batch: the best prefix of each sentence, given each sentence's highest coefficients."""
        high = best >= self.least
        sentence, memory = high.nonzero().unbind(1)
        if not len(sentence):
            return
        # Both give the first of several equal positions.
        if len(sentence) > _DENSE * high.numel():
            position = coefficients.max(1).indices[sentence, memory]
        else:
            position = coefficients[sentence, :, memory].argmax(1)
        self.offer(memory, pack(best[sentence, memory], first_prefixes[sentence] + position))

    def merge(self) -> None:
        super().merge()
        self._see_least()

    def _see_least(self) -> None:
        """The t-th best coefficient of every memory, which a candidate must reach; the least number above 0 where there is room."""
        self.least = coefficients_of(self.keys[:, -1].clamp_min(1 << 32))
