"""Passes over whole sentences that read the coefficients at every token."""

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ffscope.axes import Array, Float
from ffscope.models.memory_model import MemoryModel, StopPass
from ffscope.models.parts import Part
from ffscope.search.passes import by_length, sentence_inputs


class TextBatch(NamedTuple):
    """Sentences of one length, batch × pos."""

    tokens: Array


def text_batches(sentences: Sequence[Array], *, tokens: int, rows: int | None = None) -> list[TextBatch]:
    """Sentences in batches of one length, the shortest first; empty ones are left out."""
    sentences = [sentence for sentence in sentences if len(sentence)]
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    batches = by_length(lengths, tokens=tokens, rows=rows)
    return [TextBatch(np.stack([sentences[number] for number in batch])) for batch in batches]


def read_coefficients(
    model: MemoryModel,
    tokens: Array,
    bos: int | None,
    parts: Collection[Part],
    read: Callable[[Part, Float[Tensor, "prefix _memory"]], None],
) -> None:
    """Call `read` with the coefficients of each part at every token of a batch. The pass ends after the last part."""
    waiting = set(parts)

    def observe(part: Part, coefficients: Tensor, _past: int) -> None:
        # From the end: BOS or a decoder's start token comes before the sentence, in each stack of an encoder–decoder.
        read(part, coefficients[:, -tokens.shape[1] :].reshape(tokens.size, -1))
        waiting.discard(part)
        if not waiting:
            raise StopPass

    with ExitStack() as stack, suppress(StopPass):
        for part in parts:
            stack.enter_context(part.tap(observe))
        model.forward(sentence_inputs(model, tokens, bos))
