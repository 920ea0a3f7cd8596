"""The examples of a study as texts whose loss is defined: each with the position and the token that the model should predict."""

from collections.abc import Callable, Iterable, Iterator
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
from ffscope.search.passes import by_similar_length, padded, sentence_inputs
from ffscope.study.folder import Study

_GRAPH, _GRAPH_ON_GPU = 2**31, 2**35  # bytes that a pass may keep until it is differentiated
_FREE = 1 / 3  # the share of a GPU's free memory that it may take
_NUMBERS = 12  # float32 numbers per example and memory: the quantities of `estimate`, and what they are computed from
_ATTENTION = 2**17  # texts × heads: the backward kernels of attention have workspaces that are indexed with 32 bits

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

    def chunks(self, model: MemoryModel) -> list["Batch"]:
        """The same, a few texts at a time: as many as can be differentiated at once where the model is."""
        texts = texts_at_once(model, self.tokens.shape[1] + 1)
        return [
            Batch(*(array[start : start + texts] for array in self)) for start in range(0, len(self.examples), texts)
        ]

    def inputs(self, model: MemoryModel, bos: int | None) -> Inputs:
        """The texts as inputs of a model."""
        return sentence_inputs(model, self.tokens, bos)

    def places(self, model: MemoryModel) -> Places:
        """The places of the examples, on the model's device."""
        positions, targets = (torch.from_numpy(array).to(model.device) for array in (self.positions, self.targets))
        return Places(torch.arange(len(positions), device=model.device), positions, targets)


def differentiable(model: MemoryModel, batches: Iterable[Batch]) -> Iterator[Batch]:
    """The same examples in batches that are small enough to be differentiated where the model is."""
    return (chunk for batch in batches for chunk in batch.chunks(model))


def example_batches(study: Study, model: ModelInfo, examples: Examples, numbers: Array | None = None) -> list[Batch]:
    """All examples or some, in batches of similar length; those without a token to predict are left out."""
    numbers = np.arange(len(examples)) if numbers is None else np.sort(numbers)
    make_text = (
        _masked(model, examples) if is_masked(model) else _prefix(model, examples, _next_tokens(study, examples))
    )
    texts = [make_text(int(number)) for number in numbers]
    known = np.array([target >= 0 for _, _, target in texts], dtype=bool)
    texts, numbers = [text for text, keep in zip(texts, known, strict=True) if keep], numbers[known]
    lengths = np.array([len(tokens) for tokens, _, _ in texts], dtype=np.int64)
    tokens = study.settings["batch_tokens"]
    batches = by_similar_length(lengths, tokens=tokens, causal=model.causal)
    return [_batch(numbers, texts, chosen) for chosen in batches]


def batches_by_prediction(study: Study, model: ModelInfo, examples: Examples) -> list[Batch]:
    """All examples: batches that the model predicts rightly, which are differentiated once instead of twice, then the others."""
    table = pq.read_table(study.path("examples.parquet"), columns=["example", "prediction", "target"])
    right = pc.fill_null(pc.equal(table["prediction"], table["target"]), False)
    numbers = table["example"].filter(right).to_numpy()
    others = np.setdiff1d(np.arange(len(examples)), numbers)
    return [batch for some in (numbers, others) for batch in example_batches(study, model, examples, some)]


def texts_at_once(model: MemoryModel, length: int) -> int:
    """How many texts of a length can be differentiated at once where the model is."""
    texts = _graph_bytes(model.device) // (length * _bytes_per_token(model) + _NUMBERS * 4 * sum(model.memories))
    config = model.model.config.get_text_config()
    return max(1, min(texts, _ATTENTION // getattr(config, "num_attention_heads", 64)))


def _graph_bytes(device: torch.device) -> int:
    """How many bytes a pass may keep on a device."""
    if device.type != "cuda":
        return _GRAPH
    return min(_GRAPH_ON_GPU, int(torch.cuda.mem_get_info(device)[0] * _FREE))


def _bytes_per_token(model: MemoryModel) -> int:
    """Roughly what a pass keeps per token until it is differentiated."""
    wide = 5 if model.gated else 3  # tensors of the width of the memories, and 11 of that of the residual; measured
    return model.dtype.itemsize * sum(wide * memories + 11 * model.hidden for memories in model.memories)


def _batch(numbers: Array, texts: list[Text], chosen: Array) -> Batch:
    tokens, positions, targets = zip(*(texts[number] for number in chosen), strict=True)
    stacked = padded(tokens)
    return Batch(numbers[chosen], stacked, np.array(positions) - stacked.shape[1], np.array(targets))


def is_masked(model: ModelInfo) -> bool:
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
