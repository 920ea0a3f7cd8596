"""The loss over held-out text, as the model is and without groups of memories; perplexity is the exponential of its mean."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import exp
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ffscope.axes import Array, Float
from ffscope.corpus.prefixes import held_out, tokens_of
from ffscope.effects.baseline import Baselines
from ffscope.effects.groups import Group, without
from ffscope.effects.readout import Losses, read_losses
from ffscope.effects.texts import example_batches, is_masked
from ffscope.errors import CorpusError
from ffscope.models.info import ModelInfo
from ffscope.models.memory_model import MemoryModel
from ffscope.models.resumed_pass import BlockOutputs
from ffscope.search.example_pass import draw_examples
from ffscope.search.passes import by_similar_length, padded, sentence_inputs
from ffscope.study.folder import Study

State = dict[str, Tensor]
_TOKENS_CPU = 256  # per batch: many groups are measured with each, and what is done is saved after some batches


class HeldOutBatch(NamedTuple):
    """Texts, padded to one length, with the places in them at which a token is predicted; positions count from the end."""

    tokens: Array
    rows: Array
    positions: Array
    targets: Array


def held_out_batches(study: Study, model: ModelInfo, prefixes: int | None = None) -> list[HeldOutBatch]:
    """The held-out text of a study: every prefix whose next token is known, or about `prefixes` of them.

    Then whole sentences are drawn, in an order that depends on the study's seed alone. For a masked model, these are examples with
    the token at their position masked.
    """
    if is_masked(model):
        examples = draw_examples(study, prefixes or 10**9, study.settings["seed"])
        batches = example_batches(study, model, examples)
        return [HeldOutBatch(b.tokens, np.arange(len(b.tokens)), b.positions, b.targets) for b in batches]
    numbers, lengths = held_out(study.path("sentences.parquet"))
    if not len(numbers):
        raise CorpusError(
            "This study has no held-out text, so no perplexity can be measured. Make a new study, and name held-out documents with "
            "--held-out FILE."
        )
    order = np.random.default_rng([study.settings["seed"], *b"held out"]).permutation(len(numbers))
    if prefixes is not None:
        order = order[: int(np.searchsorted(np.cumsum(lengths[order]), prefixes)) + 1]
    return _whole_sentences(study, model, np.sort(numbers[order]))


def _whole_sentences(study: Study, model: ModelInfo, numbers: Array) -> list[HeldOutBatch]:
    path = study.path("sentences.parquet")
    texts, following = tokens_of(path, numbers), _next_tokens(study, numbers)
    numbers = np.array([number for number in numbers.tolist() if len(texts[number])], dtype=np.int64)
    lengths = np.array([len(texts[number]) for number in numbers.tolist()], dtype=np.int64)
    tokens = study.settings["batch_tokens"]
    if model.device.type == "cpu":
        tokens = min(tokens, _TOKENS_CPU)
    return [
        _batch([texts[number] for number in chosen], [following[number] for number in chosen])
        for chosen in (
            numbers[rows].tolist() for rows in by_similar_length(lengths, tokens=tokens, causal=model.causal)
        )
    ]


def _next_tokens(study: Study, numbers: Array) -> dict[int, int]:
    table = pq.read_table(study.path("sentences.parquet"), columns=["sentence", "next_token"])
    after = dict(zip(table["sentence"].to_pylist(), table["next_token"].to_pylist(), strict=True))
    return {number: after[number] for number in numbers.tolist()}


def _batch(sentences: Sequence[Array], following: Sequence[int]) -> HeldOutBatch:
    tokens = padded(sentences).astype(np.int64)
    targets = np.full(tokens.shape, -1)
    for row, (sentence, after) in enumerate(zip(sentences, following, strict=True)):
        targets[row, : len(sentence)] = [*sentence[1:], after]
    rows, positions = (targets >= 0).nonzero()
    return HeldOutBatch(tokens, rows, positions - tokens.shape[1], targets[rows, positions])


def losses_of(model: MemoryModel, batch: HeldOutBatch, bos: int | None) -> Float[Tensor, "n"]:
    """The loss at every place of a batch, with the edits that are active."""
    return predictions_of(model, batch, bos).loss


def predictions_of(model: MemoryModel, batch: HeldOutBatch, bos: int | None) -> Losses:
    """The same with the predicted tokens and their log-probabilities."""
    rows, positions, targets = (torch.from_numpy(array).to(model.device) for array in batch[1:])
    inputs = sentence_inputs(model, batch.tokens, bos)
    output = model.states_at(inputs, rows, positions, layers=[model.layers - 1]).output[0]
    return read_losses(model, output, targets)


@dataclass(frozen=True)
class HeldOutLoss:
    """f(model, batches) returns the sums over their places of the loss: of the model as it is, then without each group.

    The layers below the first one of a group are not run again.
    """

    bos: int | None
    groups: tuple[Group, ...] = ()
    baselines: Baselines = field(default_factory=Baselines)

    def __call__(self, model: MemoryModel, batches: list[HeldOutBatch]) -> State:
        """The sums of the losses, and of the squares of their changes; the number of places."""
        loss, change_square = (torch.zeros(1 + len(self.groups), dtype=torch.float64) for _ in range(2))
        firsts = [group.first_layer for group in self.groups]
        for batch in batches:
            below, rows = BlockOutputs(model, len(batch.tokens)), torch.arange(len(batch.tokens))
            with below.recording() if any(firsts) else nullcontext():
                intact = losses_of(model, batch, self.bos).double()
            loss[0] += intact.sum().cpu()
            for number, (group, first) in enumerate(zip(self.groups, firsts, strict=True), start=1):
                with below.resumed(first, rows), without(model, group, self.baselines):
                    losses = losses_of(model, batch, self.bos).double()
                loss[number] += losses.sum().cpu()
                change_square[number] += (losses - intact).square().sum().cpu()
        count = torch.tensor(sum(len(batch.targets) for batch in batches))
        return {"loss": loss, "change_square": change_square, "count": count}


def perplexity(model: MemoryModel, batches: Sequence[HeldOutBatch], bos: int | None) -> float:
    """The perplexity over held-out text, with the edits that are active."""
    state = HeldOutLoss(bos)(model, list(batches))
    return exp(float(state["loss"][0]) / int(state["count"]))
