"""The memories that hold a completion: what is left of it when they are removed, one by one and together."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array, Float, Int
from ffscope.effects.baseline import Baselines
from ffscope.effects.groups import Group, without
from ffscope.effects.position_sums import position_sums
from ffscope.effects.readout import read_gradients, read_losses
from ffscope.effects.texts import texts_at_once
from ffscope.leaks.completions import SentenceBatch
from ffscope.leaks.occurrences import CONTEXT
from ffscope.models.edits import zero_in_rows
from ffscope.models.gradient_pass import GradientPass
from ffscope.models.inputs import Inputs
from ffscope.models.memory_model import MemoryModel
from ffscope.models.parts import Part
from ffscope.models.resumed_pass import BlockOutputs
from ffscope.search.passes import sentence_inputs

State = dict[str, Tensor]
RANDOM_SETS = 5
"""How many sets of random memories are removed for comparison."""
_FURTHER, _STEPS = 4, 4  # doublings of a set, beyond the memories that are also removed alone, and steps of each


class LeakText(NamedTuple):
    """A sentence up to the last token that is to be completed; the first one is at `start`. `seed`: of the random memories."""

    tokens: Array
    start: int
    seed: tuple[int, ...]


class Completed(NamedTuple):
    """In each row of a batch: the log-probability of the tokens, and how many are completed before the first wrong one."""

    log_prob: Float[Tensor, "row"]
    left: Int[Tensor, "row"]


@dataclass(frozen=True)
class Holders:
    """f(model, text) returns what is left of one completion without memories.

    What counts is the drop per token beyond `elsewhere`, the size of the memory's effect on other text. The memories with the
    most of it by estimate (gradient × coefficient) are removed one by one, then together: the one with the most as measured, the
    first two, and so on, then further ones by their estimates, 2^¼ times as many each time.
    """

    elsewhere: tuple[Array, ...]  # nats per token, by layer
    bos: int | None
    memories: int  # that are removed one by one
    tokens: int  # in one pass

    @torch.no_grad()
    def __call__(self, model: MemoryModel, text: LeakText) -> State:
        """Layers, memories, estimates, drops and tokens left, in the order in which the memories are removed together."""
        run = _Run(model, text, self.bos, self.tokens)
        per_token = torch.from_numpy(np.concatenate(self.elsewhere)) * (len(text.tokens) - text.start)
        layers, memories, estimates, spared = _largest(run.estimates(), per_token, self.memories << _FURTHER)
        alone = run.without_each(layers[: self.memories], memories[: self.memories])
        drops = run.intact.log_prob - alone.log_prob
        order = torch.argsort(drops - spared[: len(drops)], descending=True, stable=True)
        order = torch.cat([order, torch.arange(len(order), len(layers))])
        layers, memories, estimates = layers[order], memories[order], estimates[order]
        alone = Completed(*(numbers[order[: len(numbers)]] for numbers in alone))
        sizes = _sizes(len(alone.left), len(layers))
        together = run.without_sets([(layers[:size], memories[:size]) for size in sizes])
        broken = (together.left < len(text.tokens) - text.start).nonzero()[:, 0]
        size = sizes[int(broken[0])] if len(broken) else sizes[-1]
        at_random = run.without_sets(_random_sets(model, layers[:size], memories[:size], text.seed))
        intact, short = run.intact, _Run(model, _shortened(text), self.bos, self.tokens).intact
        return {
            "layer": layers,
            "memory": memories,
            "estimate": estimates,
            "drop": intact.log_prob - alone.log_prob,
            "left": alone.left,
            "sizes": torch.tensor(sizes),
            "drop_together": intact.log_prob - together.log_prob,
            "left_together": together.left,
            "random_drop": intact.log_prob - at_random.log_prob,
            "random_left": at_random.left,
            "log_prob": torch.stack([intact.log_prob[0], short.log_prob[0]]),
            "size": torch.tensor([size, len(broken)]),
        }


@dataclass(frozen=True)
class Together:
    """f(model, texts) returns how many tokens are left of each completion without a group of memories."""

    group: Group
    bos: int | None

    @torch.no_grad()
    def __call__(self, model: MemoryModel, texts: list[LeakText]) -> State:
        """The numbers of tokens."""
        with without(model, self.group, Baselines()):
            left = [_Run(model, text, self.bos).intact.left for text in texts]
        return {"left": torch.cat(left)}


class _Run:
    """One completion, and passes over it without memories that share the layers below these."""

    def __init__(self, model: MemoryModel, text: LeakText, bos: int | None, tokens: int = 0) -> None:
        self.model, self.text, self._bos = model, text, bos
        self._at_once = max(1, tokens // len(text.tokens))
        self._places = torch.arange(text.start - len(text.tokens), 0, device=model.device) - 1  # from the end
        self._targets = torch.from_numpy(text.tokens[text.start :].astype(np.int64)).to(model.device)
        self._outputs = BlockOutputs(model, 1)
        with self._outputs.recording():
            self.intact = self._completed(1)

    def estimates(self) -> list[Float[Tensor, "_memory"]]:
        """For each layer, by how much the log-probability would drop without each memory, to first order."""
        sums = estimated_drops(self.model, self._inputs(1), self._places[None], self._targets[None])
        return [row[0] for row in sums]

    def without_each(self, layers: Int[Tensor, "n"], memories: Int[Tensor, "n"]) -> Completed:
        """Without each of these memories alone."""
        log_prob, left = torch.zeros(len(layers), dtype=torch.float64), torch.zeros(len(layers), dtype=torch.int64)
        for layer in sorted(set(layers.tolist())):  # so that the layers below it are not run again
            here = (layers == layer).nonzero()[:, 0]
            single = [(layers[at : at + 1], memories[at : at + 1]) for at in here.tolist()]
            log_prob[here], left[here] = self.without_sets(single)
        return Completed(log_prob, left)

    def without_sets(self, sets: Sequence[tuple[Tensor, Tensor]]) -> Completed:
        """Without each of these sets of layers and memories."""
        first = min(int(layers.min()) for layers, _ in sets)
        rows = []
        for start in range(0, len(sets), self._at_once):
            some = sets[start : start + self._at_once]
            with ExitStack() as stack:
                stack.enter_context(self._outputs.resumed(first, torch.zeros(len(some), dtype=torch.int64)))
                for layer in sorted({layer for layers, _ in some for layer in layers.tolist()}):
                    chosen = torch.zeros(len(some), self.model.memories[layer], dtype=torch.bool)
                    for row, (layers, memories) in enumerate(some):
                        chosen[row, memories[layers == layer]] = True
                    for part in self.model.layer(layer).parts:
                        stack.enter_context(part.tap(zero_in_rows(chosen)))
                rows.append(self._completed(len(some)))
        return Completed(*map(torch.cat, zip(*rows, strict=True)))

    def _inputs(self, count: int) -> dict[str, Tensor]:
        return sentence_inputs(self.model, np.tile(self.text.tokens.astype(np.int64), (count, 1)), self._bos)

    def _completed(self, count: int) -> Completed:
        """What is left of the completion in each row of a pass, with the edits that are active."""
        model, size = self.model, len(self._targets)
        rows = torch.arange(count, device=model.device).repeat_interleave(size)
        places, targets = self._places.repeat(count), self._targets.repeat(count)
        last = [model.layers - 1]
        states = model.states_at(self._inputs(count), rows, places, layers=last, coefficients=False).output[0]
        losses = read_losses(model, states, targets)
        hits = (losses.prediction == targets.to(losses.prediction.device)).reshape(count, size)
        return Completed(-losses.loss.double().reshape(count, size).sum(1).cpu(), hits.long().cumprod(1).sum(1).cpu())


def estimated_drops(
    model: MemoryModel, inputs: Inputs, places: Int[Tensor, "row pos"], targets: Int[Tensor, "row pos"]
) -> list[Float[Tensor, "row _memory"]]:
    """For each layer, by how much the log-probability of some tokens of a text would drop without each memory, to first order."""
    sums = [torch.zeros(len(places), count) for count in model.memories]

    def observe(layer: int, part: Part, coefficients: Tensor, gradient: Tensor) -> None:
        change, _ = position_sums(coefficients, gradient, sizes=False)
        sums[layer][:, part.offset : part.offset + part.memories] = -change.float().cpu()

    run = GradientPass(model, observe)
    rows = torch.arange(len(places), device=model.device)[:, None].expand_as(places)
    output = run.forward(inputs, rows.flatten(), places.flatten())
    gradients = read_gradients(model, output.detach(), targets.flatten())
    run.backward(output, gradients.loss, again=False)
    return sums


@dataclass(frozen=True)
class Elsewhere:
    """f(model, batches) returns, for every memory, the sum over texts of the size of its estimated effect on their loss."""

    bos: int | None

    def __call__(self, model: MemoryModel, batches: list[SentenceBatch]) -> State:
        """The sums in nats, and the number of tokens that are predicted."""
        sums, count = torch.zeros(sum(model.memories), dtype=torch.float64), 0
        for batch in batches:
            size = batch.tokens.shape[1] - 1
            for tokens in torch.from_numpy(batch.tokens).split(texts_at_once(model, size + 2)):
                inputs = sentence_inputs(model, tokens.numpy(), self.bos)
                places = torch.arange(-size - 1, -1, device=model.device).expand(len(tokens), -1)
                drops = estimated_drops(model, inputs, places, tokens[:, 1:].to(model.device))
                sums += torch.cat(drops, 1).double().abs().sum(0)
                count += size * len(tokens)
        return {"sum": sums, "count": torch.tensor(count)}


def _largest(estimates: list[Tensor], spared: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Layer, memory, estimate and `spared` of those whose estimates are above 0 and exceed `spared` most, and of one at least."""
    every = torch.cat(estimates)
    order = torch.argsort(torch.where(every > 0, every - spared, -torch.inf), descending=True, stable=True)
    order = order[: max(1, min(count, int((every > 0).sum())))]
    ends = torch.tensor(np.cumsum([len(row) for row in estimates]))
    layers = torch.searchsorted(ends, order, right=True)
    starts = torch.cat([torch.zeros(1, dtype=ends.dtype), ends])[layers]
    return layers, order - starts, every[order], spared[order]


def _sizes(alone: int, most: int) -> list[int]:
    """The sizes of the sets that are removed: 1, 2 … `alone`, then four for every doubling."""
    further = [min(round(alone * 2 ** (step / _STEPS)), most) for step in range(1, _FURTHER * _STEPS + 1)]
    return sorted({*range(1, alone + 1), *further})


def _random_sets(
    model: MemoryModel, layers: Tensor, memories: Tensor, seed: tuple[int, ...]
) -> list[tuple[Tensor, Tensor]]:
    """Sets with as many other memories of the same layers."""
    sets = []
    for number in range(RANDOM_SETS):
        generator = np.random.default_rng([*seed, number])
        drawn, at = [], []
        for layer in sorted(set(layers.tolist())):
            own = memories[layers == layer].tolist()
            others = np.setdiff1d(np.arange(model.memories[layer]), own)
            chosen = generator.permutation(others)[: len(own)]
            drawn.append(torch.from_numpy(chosen))
            at.append(torch.full((len(chosen),), layer))
        sets.append((torch.cat(at), torch.cat(drawn)))
    return sets


def _shortened(text: LeakText) -> LeakText:
    """The same with only the last tokens of the prefix."""
    first = max(0, text.start - CONTEXT)
    return LeakText(text.tokens[first:], text.start - first, text.seed)


def group_of(name: str, memories: Sequence[int], sets: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Group:
    """A group of all memories of some sets of layers and memories."""
    members = tuple(np.zeros(count, dtype=bool) for count in memories)
    for layers, numbers in sets:
        for layer, number in zip(layers, numbers, strict=True):
            members[layer][number] = True
    return Group(name, members)
