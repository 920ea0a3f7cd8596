"""The model's inputs for sentences, and batches of texts of one length or a similar one."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.models.info import ModelInfo
from ffscope.models.inputs import Inputs, bos_token
from ffscope.models.memory_model import MemoryModel
from ffscope.study.folder import Study


def sentence_inputs(model: MemoryModel, tokens: Array, bos: int | None) -> Inputs:
    """BOS and sentences of one length (batch × pos), as inputs on the model's device."""
    return model.encode(sentence_ids(model, tokens, bos))


def sentence_ids(model: MemoryModel, tokens: Array, bos: int | None) -> dict[str, Tensor]:
    """BOS and sentences of one length; in an encoder–decoder, the decoder gets its start token and the sentences."""
    config = model.model.config
    sentences = torch.from_numpy(tokens).long()
    inputs = {"input_ids": _prepend(bos, sentences)}
    if getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = _prepend(config.decoder_start_token_id, sentences)
    return inputs


def first_token(model: MemoryModel | ModelInfo, *, bos: bool) -> int | None:
    """The token that a search prepends to every sentence: BOS, if `bos` and the model has one."""
    return bos_token(model.tokenizer) if bos and model.tokenizer is not None else None


def bos_of(study: Study, model: MemoryModel | ModelInfo) -> int | None:
    """The token that a study prepends to every sentence."""
    return bos_token(model.tokenizer) if study.settings["bos"] else None


def by_length(lengths: Array, *, tokens: int, rows: int | None = None) -> list[Array]:
    """Batches of text numbers, each of one length with up to `tokens` tokens and `rows` texts; the shortest first."""
    if not len(lengths):
        return []
    rows = rows or len(lengths)
    order = np.argsort(lengths, kind="stable")
    starts = np.flatnonzero(np.diff(lengths[order], prepend=-1))
    batches = []
    for same in np.split(order, starts[1:]):
        size = max(1, min(rows, tokens // int(lengths[same[0]])))
        batches += [same[start : start + size] for start in range(0, len(same), size)]
    return batches


def by_similar_length(lengths: Array, *, tokens: int, causal: bool) -> list[Array]:
    """The same for a causal model, each with texts that are at least three quarters as long as its longest, to be padded.

    What follows a prefix does not matter to a causal model, and on a GPU many small batches take longer than their computation. For
    other models, batches of one length. The longest come first: what runs out of memory does so at once, and the time that is left
    is not estimated from batches of one short text.
    """
    if not causal:
        return by_length(lengths, tokens=tokens)
    order, start, batches = np.argsort(-lengths, kind="stable"), 0, []
    while start < len(order):
        longest = int(lengths[order[start]])
        candidates = order[start : start + max(1, tokens // longest)]
        batches.append(candidates[4 * lengths[candidates] >= 3 * longest])
        start += len(batches[-1])
    return batches


def padded(texts: Sequence[Array]) -> Array:
    """Texts of any length as rows, their last tokens repeated up to the longest."""
    longest = max(map(len, texts))
    return np.stack([np.pad(text, (0, longest - len(text)), mode="edge") for text in texts])


def _prepend(first: int | None, sentences: Tensor) -> Tensor:
    if first is None:
        return sentences
    return torch.cat([torch.full_like(sentences[:, :1], first), sentences], 1)
