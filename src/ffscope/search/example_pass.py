"""One pass of a model over a study's examples, with observers that compute tables from its states."""

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array, Int
from ffscope.corpus.prefixes import held_out, tokens_of
from ffscope.errors import CorpusError
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel, States
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.search.passes import bos_of, by_length, sentence_inputs
from ffscope.study.folder import Study
from ffscope.study.resumable_table import ResumableTable

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
        return self.model.lens("norm").state_tops(self.states.output[-1], self.model.layers - 1)

    def ff_top(self, layer: int) -> Int[Tensor, "n"] | None:
        """The top token of a layer's update; cached, since composition and refinement both use it."""
        if self.lens is None:
            return None
        if layer not in self._ff_tops:
            self._ff_tops[layer] = self.lens.update_tops(self.states.update[layer])
        return self._ff_tops[layer]


class Observer(ABC):
    """Computes the rows of one table. The table has the name of the stage."""

    stage: str
    settings: dict[str, Any]

    @abstractmethod
    def rows(self, view: View) -> dict[str, Any]:
        """The columns of the rows for these examples."""

    def close(self, study: Study) -> dict[str, Any]:
        """Called after the table is written; returns further entries for study.json."""
        return {}


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


def observe(
    study: Study,
    model: MemoryModel,
    observers: Sequence[Observer],
    examples: Examples,
    *,
    lens: Lens | None,
    progress: ProgressCallback = no_progress,
) -> None:
    """Run the model over the examples once for all observers, and write their tables."""
    start = time.perf_counter()
    texts = [_text(examples, number, causal=model.causal) for number in range(len(examples))]
    batches = _batches(study, model, examples, texts)
    parts = {observer: ResumableTable(study, f"{observer.stage}.parquet", observer.settings) for observer in observers}
    missing = {observer: set(parts[observer].missing(len(batches))) for observer in observers}
    name = " and ".join(observer.stage for observer in observers if observer.stage != "examples") or "examples"
    done = 0
    for number, batch in enumerate(batches):
        waiting = [observer for observer in observers if number in missing[observer]]
        if waiting:
            view = View(model, lens, batch, _states(study, model, examples, texts, batch))
            for observer in waiting:
                parts[observer].write_part(number, observer.rows(view))
        done += len(batch)
        progress(Progress(name, done, len(examples), unit="examples"))
    for observer in observers:
        sort_by = [column for column in ("example", "layer") if column in parts[observer].schema.names]
        parts[observer].join(len(batches), sort_by=sort_by)
        entries = observer.close(study)
        study.finish(observer.stage, observer.settings, seconds=time.perf_counter() - start, **entries)
        parts[observer].drop()


def _text(examples: Examples, number: int, *, causal: bool) -> tuple[int, int]:
    """The sentence to run for an example, and its length: for a causal model up to the sentence's last example."""
    sentence = int(examples.sentence[number])
    if not causal:
        return sentence, len(examples.tokens[sentence])
    last = int(examples.position[np.searchsorted(examples.sentence, sentence, side="right") - 1])
    return sentence, last + 1


def _batches(study: Study, model: MemoryModel, examples: Examples, texts: list[tuple[int, int]]) -> list[Array]:
    """Batches of examples: sentences of one length, with a bounded number of examples."""
    runs = list(dict.fromkeys(texts))
    members: dict[tuple[int, int], list[int]] = {run: [] for run in runs}
    for number, run in enumerate(texts):
        members[run].append(number)
    room = max(1, _MAX_COEFFICIENTS // (4 * sum(model.memories)))
    lengths = np.array([length for _, length in runs])
    batches = []
    for batch in by_length(lengths, tokens=study.settings["batch_tokens"], rows=room):
        numbers = np.array([number for run in batch for number in members[runs[run]]])
        batches += [numbers[start : start + room] for start in range(0, len(numbers), room)]
    return batches


def _states(study: Study, model: MemoryModel, examples: Examples, texts: list[tuple[int, int]], batch: Array) -> States:
    """Run a batch's sentences; the states at the examples."""
    runs = list(dict.fromkeys(texts[number] for number in batch))
    tokens = np.stack([examples.tokens[sentence][:length] for sentence, length in runs])
    rows = torch.tensor([runs.index(texts[number]) for number in batch])
    # Counted from the end: both stacks of an encoder–decoder end with the sentence.
    positions = torch.from_numpy(examples.position[batch] - tokens.shape[1])
    inputs = sentence_inputs(model, tokens, bos_of(study, model))
    return model.states_at(inputs, rows.to(model.device), positions.to(model.device))
