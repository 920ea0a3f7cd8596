"""Sentences as a model is given them, in batches of one length."""

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.models.inputs import Inputs, bos_token
from ffscope.models.memory_model import MemoryModel
from ffscope.study.folder import Study


def sentence_inputs(model: MemoryModel, tokens: Array, bos: int | None) -> Inputs:
    """BOS and sentences of one length (batch × pos); a decoder that has an encoder gets its start token and the sentences."""
    config = model.model.config
    sentences = torch.from_numpy(tokens).long()
    given = {"input_ids": _behind(bos, sentences)}
    if getattr(config, "is_encoder_decoder", False):
        given["decoder_input_ids"] = _behind(config.decoder_start_token_id, sentences)
    return model.encode(given)


def first_token(model: MemoryModel, *, bos: bool) -> int | None:
    """What a search puts before every sentence: BOS, where that is wanted and the model has it."""
    return bos_token(model.tokenizer) if bos and model.tokenizer is not None else None


def bos_of(study: Study, model: MemoryModel) -> int | None:
    """What a study puts before every sentence."""
    return bos_token(model.tokenizer) if study.settings["bos"] else None


def by_length(lengths: Array, *, tokens: int, rows: int) -> list[Array]:
    """The numbers of texts in batches of one length, up to `tokens` tokens and `rows` texts in each; the shortest first."""
    if not len(lengths):
        return []
    order = np.argsort(lengths, kind="stable")
    starts = np.flatnonzero(np.diff(lengths[order], prepend=-1))
    made = []
    for same in np.split(order, starts[1:]):
        size = max(1, min(rows, tokens // int(lengths[same[0]])))
        made += [same[start : start + size] for start in range(0, len(same), size)]
    return made


def _behind(first: int | None, sentences: Tensor) -> Tensor:
    if first is None:
        return sentences
    return torch.cat([torch.full_like(sentences[:, :1], first), sentences], 1)
