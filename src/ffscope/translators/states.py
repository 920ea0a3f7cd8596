"""The states of all layers after the tokens of some sentences, and the last output that a lens should read from them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array, Float
from ffscope.models.lenses.learned.base import Key
from ffscope.models.memory_model import MemoryModel, States
from ffscope.search.passes import by_similar_length, padded, sentence_inputs


class Rows(NamedTuple):
    """States in the order of the tokens, by layer and state, in float32; and the last outputs."""

    states: dict[Key, Float[Tensor, "n hidden"]]
    last: Float[Tensor, "n hidden"]


def translated_states(model: MemoryModel) -> list[Key]:
    """The states that lead to the logits, except the last output: those that a translator is for."""
    layers = model.predicting_layers
    outputs: list[Key] = [("output", layer) for layer in layers[:-1]]
    return [*(("residual", layer) for layer in layers), *outputs]


def read_rows(model: MemoryModel, sentences: Sequence[Array], bos: int | None, *, tokens: int) -> Rows:
    """The states after every token of some sentences, from passes over about `tokens` tokens."""
    parts: list[States] = []
    for batch, rows, positions in _batches(model, sentences, tokens):
        at = (torch.from_numpy(index).to(model.device) for index in (rows, positions))
        inputs = sentence_inputs(model, batch, bos)
        parts.append(model.states_at(inputs, *at, layers=model.predicting_layers, coefficients=False))
    keys, first = translated_states(model), model.predicting_layers[0]
    states = {key: torch.cat([getattr(part, key[0])[key[1] - first].float() for part in parts]) for key in keys}
    return Rows(states, torch.cat([part.output[-1] for part in parts]))


def _batches(model: MemoryModel, sentences: Sequence[Array], tokens: int) -> Iterator[tuple[Array, Array, Array]]:
    """Batches of sentences with the places of their tokens, which count from the end; only a causal model's can be padded."""
    lengths = np.array([len(sentence) for sentence in sentences], dtype=np.int64)
    for chosen in by_similar_length(lengths, tokens=tokens, causal=model.causal):
        texts = padded([sentences[number] for number in chosen.tolist()])
        rows, positions = (np.arange(texts.shape[1]) < lengths[chosen][:, None]).nonzero()
        yield texts, rows, positions - texts.shape[1]
