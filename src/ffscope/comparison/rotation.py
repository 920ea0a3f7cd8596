"""Random directions in the space of a layer's coefficients: the correlations to expect without a privileged basis."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Float

BLOCK = 2048  # memories of a layer that are mixed together at most: a mixture of experts may have 100,000 in a layer


class Rotation:
    """As many random directions as memories, for every block of a layer: columns of independent standard normal numbers."""

    def __init__(self, memories: Sequence[int], seed: int, device: torch.device) -> None:
        self._blocks: list[tuple[slice, Tensor]] = []
        for layer, number, at in _blocks(memories):
            size = at.stop - at.start
            generator = np.random.default_rng([seed, *b"rotation", layer, number])
            directions = generator.standard_normal((size, size), dtype=np.float32)
            self._blocks.append((at, torch.from_numpy(directions).to(device)))

    def blocks(self, coefficients: Float[Tensor, "n memory"]) -> Iterator[tuple[slice, Float[Tensor, "n _directions"]]]:
        """Coefficients, or anything linear in them, along the directions instead of the memories, block by block."""
        for at, directions in self._blocks:
            yield at, coefficients[:, at] @ directions

    def __call__(self, coefficients: Float[Tensor, "n memory"]) -> Float[Tensor, "n memory"]:
        """The same for all blocks together."""
        mixed = torch.empty_like(coefficients)
        for at, along in self.blocks(coefficients):
            mixed[:, at] = along
        return mixed


def _blocks(memories: Sequence[int]) -> Iterator[tuple[int, int, slice]]:
    """Every layer's blocks: the layer, the number of the block in it, and its memories among all of the model."""
    start = 0
    for layer, count in enumerate(memories):
        for number, first in enumerate(range(0, count, BLOCK)):
            yield layer, number, slice(start + first, start + min(first + BLOCK, count))
        start += count
