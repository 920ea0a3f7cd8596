"""Exact effects: the model run again without a memory."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Bool, Float, Int
from ffscope.effects.readout import Losses, read_losses
from ffscope.effects.texts import Places
from ffscope.models.edits import set_in_rows
from ffscope.models.hooks import tap
from ffscope.models.inputs import Inputs
from ffscope.models.memory_model import MemoryModel, StopPass
from ffscope.models.parts import Part, Reader
from ffscope.models.resumed_pass import BlockOutputs


class Effects(NamedTuple):
    """Without a memory: the change of the loss, and of the log-probability of the token that was predicted."""

    loss: Float[Tensor, "n memory"]
    prediction: Float[Tensor, "n memory"]


class Chosen(NamedTuple):
    """Some memories of a layer, what their coefficients are set to, and whether their values are other than zero."""

    memories: Int[Tensor, "some"]
    coefficients: Float[Tensor, "some"]
    write: Bool[Tensor, "some"]


def choose(
    model: MemoryModel, layer: int, memories: Int[Tensor, "some"], coefficients: Float[Tensor, "some"]
) -> Chosen:
    """Memories of a layer, for any number of batches: their values are read here, once."""
    values = model.values(layer)
    return Chosen(memories, coefficients, values[memories.to(values.device)].any(-1).to(memories.device))


class Ablation:
    """The runs of a batch of texts without one memory each, from the memory's layer on.

    The layers below are not affected by the memory, so they run once, for all memories. Where a memory's value is zero, or its
    coefficient the baseline at every position, nothing would change, so nothing is run: a run in another batch differs by rounding.
    """

    def __init__(self, model: MemoryModel, inputs: Inputs, places: Places, chosen: Mapping[int, Chosen]) -> None:
        """Run the batch once as it is, and keep what the runs without a memory need. `chosen` is by layer."""
        self.model, self.inputs, self.places, self.chosen = model, inputs, places, chosen
        batch = len(places.rows)
        self._outputs = BlockOutputs(model, batch)
        # By layer, example × memory: whether the memory has any coefficient to change.
        self._changes: dict[int, Tensor] = {}
        self.runs, self.layer_passes = 0, batch * model.layers  # over one text each
        with ExitStack() as stack:
            stack.enter_context(self._outputs.recording())
            for layer in chosen:
                for part in model.layer(layer).parts:
                    stack.enter_context(part.tap(self._keeper(layer)))
            states = last_outputs(model, inputs, places.rows, places.positions)
        self.intact = read_losses(model, states, places.targets)

    def _keeper(self, layer: int) -> Reader:
        memories, coefficients, write = self.chosen[layer]
        self._changes[layer] = torch.zeros(
            len(self.places.rows), len(memories), dtype=torch.bool, device=self.model.device
        )

        def keep(part: Part, before: Tensor, _past: int) -> None:
            here = ((memories >= part.offset) & (memories < part.offset + part.memories)).nonzero()[:, 0]
            own = memories[here] - part.offset
            chosen = before[..., own.to(before.device)]
            changes = (chosen != coefficients[here].to(chosen)).any(1) & write[here].to(chosen.device)
            self._changes[layer][:, here] = changes.to(self.model.device)

        return keep

    def effects(self, layer: int, *, at_once: int) -> Effects:
        """The effects of the layer's chosen memories, from passes over `at_once` texts."""
        memories, coefficients, _ = self.chosen[layer]
        changes = self._changes[layer]
        rows, columns = changes.nonzero(as_tuple=True)
        loss, log_prob = (torch.zeros(changes.shape, device=self.model.device) for _ in range(2))
        for start in range(0, len(rows), at_once):
            at = rows[start : start + at_once], columns[start : start + at_once]
            ablated = self._run(layer, at[0], memories[at[1]], coefficients[at[1]])
            loss[at] = (ablated.loss - self.intact.loss[at[0]]).to(loss)
            log_prob[at] = (ablated.log_prob - self.intact.log_prob[at[0]]).to(loss)
        return Effects(loss, log_prob)

    def _run(self, layer: int, rows: Tensor, memories: Tensor, coefficients: Tensor) -> Losses:
        self.runs += len(rows)
        self.layer_passes += len(rows) * (self.model.layers - layer)
        inputs = {name: _rows_of(value, rows, len(self.places.rows)) for name, value in self.inputs.items()}
        with ExitStack() as stack:
            stack.enter_context(self._outputs.resumed(layer, rows))
            for part in self.model.layer(layer).parts:
                stack.enter_context(part.tap(set_in_rows(memories, coefficients)))
            here = torch.arange(len(rows), device=rows.device)
            states = last_outputs(self.model, inputs, here, self.places.positions[rows])
        return read_losses(self.model, states, self.places.targets[rows], self.intact.prediction[rows])


def last_outputs(
    model: MemoryModel, inputs: Inputs, rows: Int[Tensor, "n"], positions: Int[Tensor, "n"]
) -> Float[Tensor, "n hidden"]:
    """The last output at some places of a pass, one in each row, which ends there."""
    outputs: list[Tensor] = []
    with suppress(StopPass), _last_output(model, rows, positions, outputs):
        model.forward(inputs)
    return outputs[0]


@contextmanager
def _last_output(model: MemoryModel, rows: Tensor, positions: Tensor, outputs: list[Tensor]) -> Iterator[None]:
    last = model.layer(model.layers - 1)

    def keep(output: Tensor) -> None:
        shaped = output.reshape(len(rows), -1, output.shape[-1])
        outputs.append(shaped[rows.to(output.device), positions.to(output.device)].to(model.device))
        raise StopPass

    with tap(last.module(last.output_site), last.output_site.side, keep):
        yield


def _rows_of(value: Any, rows: Tensor, batch: int) -> Any:
    return value[rows.to(value.device)] if isinstance(value, Tensor) and len(value) == batch else value
