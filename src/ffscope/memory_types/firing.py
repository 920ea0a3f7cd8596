"""On which prefixes of a sample every memory fires, as packed bits."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ffscope.axes import Array, Bool, Int
from ffscope.models.memory_model import MemoryModel
from ffscope.models.parts import Part
from ffscope.search.text_pass import read_coefficients, text_batches


class Block(NamedTuple):
    """Some memories of one layer, in ascending order."""

    layer: int
    memories: Int[Array, "memory"]


class Prefixes(NamedTuple):
    """The prefixes of a sample, sentence by sentence: the last token of each, its position, and the length of its sentence."""

    tokens: Int[Array, "prefix"]
    positions: Int[Array, "prefix"]
    lengths: Int[Array, "prefix"]


def batches_of(sentences: list[Array], *, tokens: int, rows: int) -> list[Array]:
    """Sentences in batches of one length, batch × pos; the shortest first."""
    return [batch.tokens for batch in text_batches(sentences, tokens=tokens, rows=rows)]


def prefixes_of(batches: list[Array]) -> Prefixes:
    """The prefixes of batches, in the order in which firings are recorded."""
    shapes = [batch.shape for batch in batches]
    positions = [np.tile(np.arange(length), rows) for rows, length in shapes]
    lengths = [np.full(rows * length, length) for rows, length in shapes]
    return Prefixes(*(np.concatenate(each) for each in ([batch.ravel() for batch in batches], positions, lengths)))


class Firings:
    """Whether each memory of a block fires on each prefix: one bit for each."""

    def __init__(self, block: Block, prefixes: int) -> None:
        self.block = block
        self._bits = np.zeros((prefixes, -(-len(block.memories) // 8)), dtype=np.uint8)
        self._written = 0

    def write(self, fired: Bool[Array, "prefix memory"]) -> None:
        """Add the next prefixes."""
        end = self._written + len(fired)
        self._bits[self._written : end] = np.packbits(fired, axis=1)
        self._written = end

    def chunks(self, size: int) -> Iterator[Bool[Array, "_memory prefix"]]:
        """The firings of up to `size` memories at a time, in order; rounded to bytes, but at least 8."""
        step = max(1, size // 8)
        for start in range(0, self._bits.shape[1], step):
            part = np.unpackbits(self._bits[:, start : start + step], axis=1)
            count = min(8 * (start + step), len(self.block.memories)) - 8 * start
            yield np.ascontiguousarray(part[:, :count].T).view(bool)


def record_firings(model: MemoryModel, blocks: list[Block], batches: list[Array], *, bos: int | None) -> list[Firings]:
    """The firings of blocks on the prefixes of batches, from one pass over each batch that ends after the last layer needed."""
    count = sum(batch.size for batch in batches)
    firings = [Firings(block, count) for block in blocks]
    for tokens in batches:
        _run(model, firings, tokens, bos)
    return firings


def _run(model: MemoryModel, firings: list[Firings], tokens: Array, bos: int | None) -> None:
    """Record one batch."""
    fired = [np.zeros((tokens.size, len(each.block.memories)), dtype=bool) for each in firings]
    layers = {part: each.block.layer for each in firings for part in model.layer(each.block.layer).parts}

    def record(part: Part, coefficients: Tensor) -> None:
        above_0 = (coefficients > 0).cpu().numpy()
        for target, each in zip(fired, firings, strict=True):
            if each.block.layer == layers[part]:
                _copy(above_0, part.offset, each.block.memories, target)

    read_coefficients(model, tokens, bos, layers, record)
    for target, each in zip(fired, firings, strict=True):
        each.write(target)


def _copy(above_0: Array, offset: int, memories: Array, target: Array) -> None:
    """Copy what a part has of these memories."""
    start, end = np.searchsorted(memories, [offset, offset + above_0.shape[1]])
    target[:, start:end] = above_0[:, memories[start:end] - offset]
