"""The coefficients of one memory at every token of sentences, as a study's own passes give them."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from torch import Tensor

from ffscope.corpus.batches import Array
from ffscope.live.cancellation import Stop
from ffscope.live.requests import finite, heeding
from ffscope.memory_name import Memory
from ffscope.models.memory_model import EnoughSeen, MemoryModel
from ffscope.models.parts import Part
from ffscope.search.passes import by_length, sentence_inputs

_TOKENS = 2**12  # in a batch
_PASS = 64  # tokens of padding that take as long as another pass: about 30 on one core, more on several or on a GPU


def coefficients_in(
    model: MemoryModel, memory: Memory, *, sentences: Sequence[Sequence[int]], bos: int | None, stop: Stop
) -> list[list[float]]:
    """Of each sentence the coefficient at every token; what stands in front of them is left out."""
    coefficients: list[list[float]] = [[] for _ in sentences]
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    numbers = np.flatnonzero(lengths)
    # Nothing that follows a sentence changes what a causal model holds within it, so padding needs no mask there.
    batches = padded_batches if model.causal else one_length_batches
    with heeding(model, stop):
        for batch in batches(lengths[numbers]):
            rows = numbers[batch].tolist()
            for row, heard in zip(rows, _heard(model, memory, [sentences[row] for row in rows], bos), strict=True):
                coefficients[row] = heard
    return coefficients


def one_length_batches(lengths: Array) -> list[Array]:
    """The numbers of sentences, in batches whose sentences have the same length."""
    return by_length(lengths, tokens=_TOKENS, rows=_TOKENS)


def padded_batches(lengths: Array) -> list[Array]:
    """The numbers of sentences, shortest first, in the batches that together take least time: each a pass, and padding."""
    order = np.argsort(lengths, kind="stable")
    best = [(0, 0)]  # of the first so many sentences: the least time, in tokens, and where their last batch starts
    for end, length in enumerate(lengths[order].tolist(), 1):
        starts = range(max(0, end - max(1, _TOKENS // length)), end)
        best.append(min((best[start][0] + _PASS + (end - start) * length, start) for start in starts))
    batches, end = [], len(order)
    while end:
        start = best[end][1]
        batches.append(order[start:end])
        end = start
    return batches[::-1]


def _heard(
    model: MemoryModel, memory: Memory, sentences: Sequence[Sequence[int]], bos: int | None
) -> list[list[float]]:
    """One pass over sentences, padded on the right to one length, which ends at this memory's coefficients."""
    parts = model.layer(memory.layer).parts
    mine = next(part for part in parts if memory.memory < part.offset + part.memories)
    longest = max(map(len, sentences))
    tokens = np.array([[*sentence, *[sentence[-1]] * (longest - len(sentence))] for sentence in sentences])
    heard: list[list[float]] = []

    def hear(part: Part, coefficients: Tensor, _past: int) -> None:
        # From the end, where both stacks of an encoder–decoder hold the sentence.
        here = coefficients[:, -longest:, memory.memory - part.offset].float()
        for row, sentence in zip(here, sentences, strict=True):
            heard.append(finite(row[: len(sentence)], f"layer {memory.layer}").tolist())
        raise EnoughSeen

    with suppress(EnoughSeen), mine.tap(hear):
        model.forward(sentence_inputs(model, tokens, bos))
    return heard
