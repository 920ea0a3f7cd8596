"""The coefficients of one memory at every token of sentences, as a study's own passes give them."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from torch import Tensor

from ffscope.corpus.batches import Array
from ffscope.live.asking import finite, heeding
from ffscope.live.stopping import Stop
from ffscope.memory import Memory
from ffscope.models.memory_model import Enough, MemoryModel
from ffscope.models.parts import Part
from ffscope.running.passes import by_length, sentence_inputs

_TOKENS = 2**12  # in a batch


def coefficients_in(
    model: MemoryModel, memory: Memory, *, sentences: Sequence[Sequence[int]], bos: int | None, stop: Stop
) -> list[list[float]]:
    """Of each sentence the coefficient at every token; what stands in front of them is left out."""
    found: list[list[float]] = [[] for _ in sentences]
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    some = np.flatnonzero(lengths)
    with heeding(model, stop):
        for batch in by_length(lengths[some], tokens=_TOKENS, rows=_TOKENS):
            numbers = some[batch].tolist()
            tokens = np.array([list(sentences[number]) for number in numbers])
            for number, heard in zip(numbers, _heard(model, memory, tokens, bos), strict=True):
                found[number] = heard
    return found


def _heard(model: MemoryModel, memory: Memory, tokens: Array, bos: int | None) -> list[list[float]]:
    """One pass over sentences of one length, which ends where this memory's coefficients are heard."""
    parts = model.layer(memory.layer).parts
    mine = next(part for part in parts if memory.memory < part.offset + part.memories)
    heard: list[list[float]] = []

    def hear(part: Part, coefficients: Tensor, _past: int) -> None:
        # From the end, where both stacks of an encoder–decoder hold the sentence.
        here = coefficients[:, -tokens.shape[1] :, memory.memory - part.offset]
        heard.extend(finite(here.float(), f"layer {memory.layer}").tolist())
        raise Enough

    with suppress(Enough), mine.tap(hear):
        model.forward(sentence_inputs(model, tokens, bos))
    return heard
