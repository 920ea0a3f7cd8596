"""Sentences → batches of equal length: no padding, so no masks, and every position of every batch is a prefix."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ffscope.axes import Array

_WAITING_BATCHES = 64  # batches' worth of tokens that may wait for more sentences of their length


class Chunk(NamedTuple):
    """Consecutive sentences: their numbers, the number of each sentence's first prefix, and all tokens concatenated."""

    sentences: Array
    first_prefixes: Array
    lengths: Array
    tokens: Array


class Batch(NamedTuple):
    """Sentences of one length: batch × pos."""

    sentences: Array
    first_prefixes: Array
    tokens: Array


def batches(chunks: Iterable[Chunk], *, tokens: int, before: int, rows: int) -> Iterator[Batch]:
    """Batches of up to `tokens` tokens and `rows` sentences, counting `before` tokens that the caller prepends to each sentence.

    Which sentences share a batch depends only on their order, so a resumed run makes the same batches.
    """
    waiting: dict[int, _Bucket] = {}
    for chunk in chunks:
        starts = np.cumsum(chunk.lengths) - chunk.lengths
        for length in np.unique(chunk.lengths):
            at = np.flatnonzero(chunk.lengths == length)
            bucket = waiting.setdefault(int(length), _Bucket(int(length)))
            tokens_of_length = chunk.tokens[starts[at, None] + np.arange(length)]
            bucket.add(Batch(chunk.sentences[at], chunk.first_prefixes[at], tokens_of_length))
            yield from bucket.full(max(1, min(rows, tokens // (int(length) + before))))
        while sum(bucket.tokens for bucket in waiting.values()) > _WAITING_BATCHES * tokens:
            yield from max(waiting.values(), key=lambda bucket: bucket.tokens).rest()
    for length in sorted(waiting):
        yield from waiting[length].rest()


@dataclass
class _Bucket:
    """Sentences of one length that wait until they fill a batch."""

    length: int
    parts: list[Batch] = field(default_factory=list)
    count: int = 0

    @property
    def tokens(self) -> int:
        return self.count * self.length

    def add(self, part: Batch) -> None:
        self.parts.append(part)
        self.count += len(part.sentences)

    def full(self, size: int) -> Iterator[Batch]:
        if self.count < size:
            return
        joined = Batch(*map(np.concatenate, zip(*self.parts, strict=True)))
        whole = self.count - self.count % size
        for start in range(0, whole, size):
            yield Batch(*(array[start : start + size] for array in joined))
        self.parts, self.count = [Batch(*(array[whole:] for array in joined))], self.count - whole

    def rest(self) -> Iterator[Batch]:
        if self.count:
            yield from self.full(self.count)
