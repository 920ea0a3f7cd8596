"""What is asked of a model, checked: a text, a position, a number."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ffscope.errors import CoefficientError, InputError
from ffscope.live.cancellation import Stop, heed
from ffscope.models.hooks import hooked
from ffscope.models.inputs import Inputs
from ffscope.models.memory_model import MemoryModel
from ffscope.search.passes import sentence_inputs


class Asked(NamedTuple):
    """A text as the model is given it, as in a study: behind BOS, and in a decoder that has an encoder behind its start token."""

    text: str
    sentence: list[int]  # without anything in front
    inputs: Inputs

    @property
    def ids(self) -> list[int]:
        """What the layers that predict see, one id for each of their positions."""
        seen = self.inputs["decoder_input_ids" if "decoder_input_ids" in self.inputs else "input_ids"]
        return seen[0].tolist()


def ask(model: MemoryModel, text: str, *, bos: int | None, most: int) -> Asked:
    """A text, refused where it is empty, too long or not text."""
    ids = model.encode(text, bos=bos is not None)["input_ids"][0].tolist()
    if len(ids) > most:
        raise InputError(f"The text has {len(ids)} tokens, BOS included; expected at most {most}. Shorten it.")
    sentence = ids if bos is None else ids[1:]
    return Asked(text, sentence, sentence_inputs(model, np.array([sentence]), bos))


def place(position: int, length: int) -> int:
    """A position from 0; below 0 it counts from the end."""
    if not -length <= position < length:
        raise InputError(
            f"There is no position {position}: the text has {length} tokens, BOS included, counted from 0."
        )
    return position % length


def between(what: str, number: int, *, most: int) -> int:
    """A number of things, from 1."""
    if not 1 <= number <= most:
        raise InputError(f"Expected 1 to {most} {what}, found {number}.")
    return number


def predicting(model: MemoryModel) -> list[int]:
    """The layers that lead to the logits: all, or those of the decoder, which come after its encoder's."""
    if not getattr(model.model.config, "is_encoder_decoder", False):
        return list(range(model.layers))
    first = max(layer for layer in range(model.layers) if model.layer(layer).parts[0].depth == 0)
    return list(range(first, model.layers))


@contextmanager
def heeding(model: MemoryModel, stop: Stop) -> Iterator[None]:
    """Within the block, and in this thread, every layer asks before it runs whether to stop; so does every new token."""

    def hear(*_given: object) -> None:
        heed(stop)

    with ExitStack() as stack:
        for layer in range(model.layers):
            stack.enter_context(hooked(model.layer(layer).block, "in", hear))
        yield


def finite(numbers: Tensor, where: str) -> Tensor:
    """Numbers that can be shown; a run that holds others is refused."""
    if not numbers.isfinite().all():
        raise CoefficientError(
            f"The model holds numbers that are not finite in {where}, so nothing can be ranked there. Expected finite ones: "
            "intervene with smaller numbers, or load the model in float32, or bfloat16 for its range."
        )
    return numbers
