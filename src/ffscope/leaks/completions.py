"""Runs of tokens that a model predicts one after the other: what it would write itself, greedily, after the prefix before them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.effects.readout import read_losses
from ffscope.models.memory_model import MemoryModel
from ffscope.search.passes import by_length, sentence_inputs

State = dict[str, Tensor]


class SentenceBatch(NamedTuple):
    """Sentences of one length with their numbers."""

    sentences: Array
    tokens: Array


class Run(NamedTuple):
    """Consecutive tokens of a sentence that are each the model's prediction: the position of the first, and how many they are."""

    sentence: int
    start: int
    length: int


def sentence_batches(texts: dict[int, Array], tokens: int) -> list[SentenceBatch]:
    """Sentences of two tokens and more in batches of one length."""
    numbers = np.array([number for number in sorted(texts) if len(texts[number]) > 1], dtype=np.int64)
    lengths = np.array([len(texts[number]) for number in numbers.tolist()], dtype=np.int64)
    return [
        SentenceBatch(numbers[rows], np.stack([texts[number] for number in numbers[rows].tolist()]).astype(np.int64))
        for rows in by_length(lengths, tokens=tokens)
    ]


@dataclass(frozen=True)
class Completions:
    """f(model, batches) returns the runs of at least `shortest` tokens in their sentences, after a first token."""

    bos: int | None
    shortest: int

    def __call__(self, model: MemoryModel, batches: list[SentenceBatch]) -> State:
        """The runs, each with its sentence, start and length."""
        runs = [run for batch in batches for run in self._of_batch(model, batch)]
        return {"runs": torch.tensor(runs, dtype=torch.int64).reshape(-1, 3)}

    def _of_batch(self, model: MemoryModel, batch: SentenceBatch) -> list[Run]:
        count, length = batch.tokens.shape
        rows = torch.arange(count, device=model.device).repeat_interleave(length - 1)
        positions = torch.arange(-length, -1, device=model.device).repeat(count)  # from the end, since BOS may be first
        targets = torch.from_numpy(batch.tokens[:, 1:].reshape(-1)).to(model.device)
        inputs = sentence_inputs(model, batch.tokens, self.bos)
        states = model.states_at(inputs, rows, positions, layers=[model.layers - 1], coefficients=False).output[0]
        prediction = read_losses(model, states, targets).prediction
        correct = (prediction == targets.to(prediction.device)).reshape(count, -1).cpu().numpy()
        return [
            Run(int(sentence), start + 1, size)
            for sentence, row in zip(batch.sentences, correct, strict=True)
            for start, size in runs_of(row)
            if size >= self.shortest
        ]


def runs_of(hits: Sequence[bool] | Array) -> list[tuple[int, int]]:
    """The start and length of every run of true entries."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], np.asarray(hits, dtype=np.int8), [0]])))
    return [(int(start), int(end - start)) for start, end in edges.reshape(-1, 2)]


def joined(state: State, other: State) -> State:
    """The runs of two states."""
    return {"runs": torch.cat([state["runs"], other["runs"]])}


def runs_in(state: State) -> list[Run]:
    """The runs of a state, by sentence and start."""
    return sorted(Run(*row) for row in state["runs"].tolist())
