"""The examples of a study as texts whose loss is defined: each with the position and the token that the model should predict."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ffscope.axes import Array, Int
from ffscope.errors import GradientError
from ffscope.models.info import ModelInfo
from ffscope.models.inputs import Inputs
from ffscope.models.memory_model import MemoryModel
from ffscope.search.example_pass import Examples
from ffscope.search.passes import by_length, sentence_inputs
from ffscope.study.folder import Study

_GRAPH = 2**31  # bytes that a pass may keep until it is differentiated

Text = tuple[Array, int, int]
"""Tokens, the position after which to predict, and the token to predict; -1 if it is not known."""


class Places(NamedTuple):
    """The examples in a batch of texts: one per row, with the token to predict. Positions count from the end."""

    rows: Int[Tensor, "n"]
    positions: Int[Tensor, "n"]
    targets: Int[Tensor, "n"]


class Batch(NamedTuple):
    """Examples as texts of one length."""

    examples: Array
    tokens: Array
    positions: Array
    targets: Array

    def inputs(self, model: MemoryModel, bos: int | None) -> Inputs:
        """The texts as inputs of a model."""
        return sentence_inputs(model, self.tokens, bos)

    def places(self, model: MemoryModel) -> Places:
        """The places of the examples, on the model's device."""
        positions, targets = (torch.from_numpy(array).to(model.device) for array in (self.positions, self.targets))
        return Places(torch.arange(len(positions), device=model.device), positions, targets)


def example_batches(
    study: Study, model: ModelInfo, examples: Examples, numbers: Array | None = None, *, graph: bool = True
) -> list[Batch]:
    """All examples or some, in batches of one length; those without a token to predict are left out.

    With `graph`, a batch is small enough to be differentiated.
    """
    numbers = np.arange(len(examples)) if numbers is None else np.sort(numbers)
    make_text = (
        _masked(model, examples) if _is_masked(model) else _prefix(model, examples, _next_tokens(study, examples))
    )
    texts = [make_text(int(number)) for number in numbers]
    known = np.array([target >= 0 for _, _, target in texts], dtype=bool)
    texts, numbers = [text for text, keep in zip(texts, known, strict=True) if keep], numbers[known]
    lengths = np.array([len(tokens) for tokens, _, _ in texts], dtype=np.int64)
    most = study.settings["batch_tokens"]
    tokens = min(most, _GRAPH // _bytes_per_token(model)) if graph else most
    return [_batch(numbers, texts, chosen) for chosen in by_length(lengths, tokens=tokens, rows=len(texts))]


def _bytes_per_token(model: ModelInfo) -> int:
    """Roughly what a pass keeps per token until it is differentiated."""
    return model.dtype.itemsize * sum(5 * memories + 16 * model.hidden for memories in model.memories)


def _batch(numbers: Array, texts: list[Text], chosen: Array) -> Batch:
    tokens, positions, targets = zip(*(texts[number] for number in chosen), strict=True)
    stacked = np.stack(tokens)
    return Batch(numbers[chosen], stacked, np.array(positions) - stacked.shape[1], np.array(targets))


def _is_masked(model: ModelInfo) -> bool:
    """Whether the model predicts masked tokens: it reads in both directions, and has no decoder."""
    return not model.causal and not model.has_start_token


def _prefix(model: ModelInfo, examples: Examples, targets: Array) -> Callable[[int], Text]:
    """A prefix, and the token that follows it. A decoder beside an encoder gets the whole sentence, as the encoder does."""

    def text(number: int) -> Text:
        tokens, position = examples.tokens[int(examples.sentence[number])], int(examples.position[number])
        return tokens[: position + 1] if model.causal else tokens, position, int(targets[number])

    return text


def _masked(model: ModelInfo, examples: Examples) -> Callable[[int], Text]:
    """A sentence with one token masked, and that token."""
    mask = getattr(model.tokenizer, "mask_token_id", None)
    if mask is None:
        raise GradientError(
            "This model predicts masked tokens, and its tokenizer has no mask token, so the loss at an example is not defined. "
            "Expected a tokenizer with mask_token; add it to the model's tokenizer files."
        )

    def text(number: int) -> Text:
        tokens, position = examples.tokens[int(examples.sentence[number])].copy(), int(examples.position[number])
        target, tokens[position] = int(tokens[position]), mask
        return tokens, position, target

    return text


def _next_tokens(study: Study, examples: Examples) -> Array:
    """The token after each example's prefix; -1 after the last of a paragraph if the tokenizer has no EOS."""
    wanted = pc.field("sentence").isin(np.unique(examples.sentence))
    table = pq.read_table(study.path("sentences.parquet"), columns=["sentence", "next_token"], filters=wanted)
    after = dict(zip(table["sentence"].to_pylist(), table["next_token"].to_pylist(), strict=True))
    places = zip(examples.sentence.tolist(), examples.position.tolist(), strict=True)
    following = [(examples.tokens[sentence][position + 1 :], after[sentence]) for sentence, position in places]
    return np.array([tokens[0] if len(tokens) else last for tokens, last in following], dtype=np.int64)
