"""One pass of a model over a study's examples, with observers that compute tables from its states."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array, Int
from ffscope.corpus.prefixes import held_out, tokens_of
from ffscope.errors import CorpusError
from ffscope.models.info import ModelInfo
from ffscope.models.lenses import ChosenLens
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel, States
from ffscope.search.passes import by_length, sentence_inputs
from ffscope.stages.stage import Work
from ffscope.study.folder import Study

_MAX_COEFFICIENTS = 2**27  # bytes of coefficients kept per batch


@dataclass(frozen=True)
class Examples:
    """Prefixes of held-out sentences: the number of the sentence, a key of `tokens`, and the position in it."""

    sentence: Array
    position: Array
    tokens: dict[int, Array]

    def __len__(self) -> int:
        return len(self.sentence)


class View:
    """A model's states at some examples, and their predictions."""

    def __init__(self, model: MemoryModel, lens: Lens | None, examples: Array, states: States) -> None:
        self.model, self.lens, self.examples, self.states = model, lens, examples, states
        self._ff_tops: dict[int, Tensor] = {}

    @cached_property
    def prediction(self) -> Int[Tensor, "n"] | None:
        """The model's own prediction, for any lens; None if it has no unembedding."""
        if self.model.top is None:
            return None
        return self.model.lens("norm").state_tops(self.states.output[-1], self.model.layers - 1, "output")

    def ff_top(self, layer: int) -> Int[Tensor, "n"] | None:
        """The top token of a layer's update; cached, since composition and refinement both use it."""
        if self.lens is None:
            return None
        if layer not in self._ff_tops:
            self._ff_tops[layer] = self.lens.update_tops(self.states.update[layer], layer)
        return self._ff_tops[layer]


class Observer(ABC):
    """Computes the rows of one table. The table has the name of the stage.

    It is created where the study is, and pickled: `rows` may run on other machines, which have the model but not the study. A model
    that it refers to is replaced by the one there.
    """

    stage: str
    settings: dict[str, Any]

    @abstractmethod
    def rows(self, view: View) -> dict[str, Any]:
        """The columns of the rows for these examples."""

    def close(self, work: Work) -> dict[str, Any]:
        """Called where the study is, after the table is written; returns further entries for study.json."""
        return {}


class Batch(NamedTuple):
    """Examples in sentences of one length, and the stages that still need them."""

    examples: Array
    tokens: Array
    rows: Array
    positions: Array  # counted from the end: both stacks of an encoder–decoder end with the sentence
    stages: tuple[str, ...]


@dataclass(frozen=True)
class Pass:
    """Runs batches of examples, for some observers."""

    observers: list[Observer]
    lens: ChosenLens
    bos: int | None

    def __call__(self, model: MemoryModel, batch: Batch) -> dict[str, dict[str, Any]]:
        """The columns of each waiting observer's table, by stage."""
        lens = None if model.top is None else self.lens.of(model)
        view = View(model, lens, batch.examples, states_of(model, batch, self.bos))
        return {observer.stage: observer.rows(view) for observer in self.observers if observer.stage in batch.stages}


def draw_examples(study: Study, count: int, seed: int) -> Examples:
    """A uniform sample of `count` prefixes of the held-out sentences; all of them if there are fewer."""
    text = study.path("sentences.parquet")
    sentences, lengths = held_out(text)
    if not len(sentences):
        raise CorpusError(
            "There are no held-out examples: every twentieth document of the corpus is held out, and this corpus has fewer. Make "
            "a new study, and name held-out documents with --held-out FILE."
        )
    total = int(lengths.sum())
    generator = np.random.default_rng([seed, *b"examples"])
    picked = np.sort(generator.choice(total, min(count, total), replace=False, shuffle=False))
    starts = np.cumsum(lengths) - lengths
    row = np.searchsorted(starts, picked, side="right") - 1
    return Examples(sentences[row], picked - starts[row], tokens_of(text, sentences[row]))


def _text(examples: Examples, number: int, *, causal: bool) -> tuple[int, int]:
    """The sentence to run for an example, and its length: for a causal model up to the sentence's last example."""
    sentence = int(examples.sentence[number])
    if not causal:
        return sentence, len(examples.tokens[sentence])
    last = int(examples.position[np.searchsorted(examples.sentence, sentence, side="right") - 1])
    return sentence, last + 1


def batches_of(study: Study, model: ModelInfo, examples: Examples) -> list[Batch]:
    """Batches of examples: sentences of one length, with a bounded number of examples. No stage needs them yet."""
    texts = [_text(examples, number, causal=model.causal) for number in range(len(examples))]
    runs = list(dict.fromkeys(texts))
    members: dict[tuple[int, int], list[int]] = {run: [] for run in runs}
    for number, run in enumerate(texts):
        members[run].append(number)
    room = max(1, _MAX_COEFFICIENTS // (4 * sum(model.memories)))
    lengths = np.array([length for _, length in runs])
    batches = []
    for batch in by_length(lengths, tokens=study.settings["batch_tokens"], rows=room):
        numbers = np.array([number for run in batch for number in members[runs[run]]])
        batches += [_batch(examples, texts, numbers[start : start + room]) for start in range(0, len(numbers), room)]
    return batches


def _batch(examples: Examples, texts: list[tuple[int, int]], numbers: Array) -> Batch:
    runs = list(dict.fromkeys(texts[number] for number in numbers))
    tokens = np.stack([examples.tokens[sentence][:length] for sentence, length in runs])
    rows = np.array([runs.index(texts[number]) for number in numbers])
    return Batch(numbers, tokens, rows, examples.position[numbers] - tokens.shape[1], ())


def states_of(model: MemoryModel, batch: Batch, bos: int | None) -> States:
    """Run a batch's sentences; the states at the examples."""
    rows, positions = torch.from_numpy(batch.rows), torch.from_numpy(batch.positions)
    inputs = sentence_inputs(model, batch.tokens, bos)
    return model.states_at(inputs, rows.to(model.device), positions.to(model.device))
