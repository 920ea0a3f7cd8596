"""Exact effects of some memories beside their estimates, summed over examples."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.effects.ablation import Ablation, Chosen, choose
from ffscope.effects.baseline import Baselines
from ffscope.effects.estimate import Estimator, Quantity
from ffscope.effects.texts import Batch, differentiable
from ffscope.models.memory_model import MemoryModel

KINDS = ("strongest", "weakest", "random")
State = dict[str, Tensor]


@dataclass(frozen=True)
class Selection:
    """Memories whose effects are measured, by layer, and why each was selected."""

    memories: dict[int, Array]
    kinds: dict[int, list[str]]

    def __len__(self) -> int:
        return sum(map(len, self.memories.values()))

    @property
    def digest(self) -> bytes:
        """Which memories these are, as bytes."""
        return b"".join(memories.tobytes() for memories in self.memories.values())


def select(sizes: Sequence[Array], count: int, seed: int) -> Selection:
    """Of each layer `count` memories: a third with the largest effects, a third with the smallest above 0, the rest at random."""
    rows = {layer: _select(row, count, seed, layer) for layer, row in enumerate(sizes)} if count else {}
    return Selection(
        {layer: np.array(list(row), dtype=np.int64) for layer, row in rows.items()},
        {layer: list(row.values()) for layer, row in rows.items()},
    )


def _select(sizes: Array, count: int, seed: int, layer: int) -> dict[int, str]:
    """The selected memories of one layer, in order, each with its kind."""
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    third = count // 3
    shuffled = np.random.default_rng([seed, *b"effects", layer]).permutation(len(sizes))
    chosen: dict[int, str] = {}
    for kind, candidates, room in zip(KINDS, (order, order[::-1], shuffled), (third, third, count), strict=True):
        fresh = [int(memory) for memory in candidates if int(memory) not in chosen]
        chosen |= dict.fromkeys(fresh[: min(room, count - len(chosen))], kind)
    return dict(sorted(chosen.items()))


@dataclass(frozen=True)
class Exact:
    """f(model, batches) returns sums over the examples, one number per selected memory, layer by layer."""

    selection: Selection
    baselines: Baselines
    bos: int | None
    steps: int
    tokens: int  # in one pass

    def __call__(self, model: MemoryModel, batches: list[Batch]) -> State:
        """The sums of the estimates, of the exact effects, and of their squares and products."""
        state: State = {}
        estimator = Estimator(model, self.baselines, bos=self.bos, steps=self.steps)
        chosen = {layer: self._chosen(model, layer) for layer in self.selection.memories}
        for batch in differentiable(model, batches):
            for name, tensor in self._of_batch(estimator, chosen, batch).items():
                state[name] = tensor.cpu() + state.get(name, 0)
        return state

    def _of_batch(self, estimator: Estimator, chosen: dict[int, Chosen], batch: Batch) -> State:
        model, estimates = estimator.model, self._estimates(estimator, batch)
        ablation = Ablation(model, batch.inputs(model, self.bos), batch.places(model), chosen)
        at_once = max(1, self.tokens // batch.tokens.shape[1])
        effects = [ablation.effects(layer, at_once=at_once) for layer in chosen]
        exact = torch.cat([effect.loss for effect in effects], 1).double()
        prediction = torch.cat([effect.prediction for effect in effects], 1).double()
        estimate = estimates["effect"].double()
        counts = [len(exact), ablation.runs, ablation.layer_passes, (ablation.runs + len(exact)) * model.layers]
        return {
            "estimate": estimate.sum(0),
            "estimate_square": estimate.square().sum(0),
            "effect": exact.sum(0),
            "effect_square": exact.square().sum(0),
            "effect_size": exact.abs().sum(0),
            "product": (exact * estimate).sum(0),
            "prediction_estimate": estimates["prediction"].double().sum(0),
            "prediction": prediction.sum(0),
            # examples, runs without a memory, passes of one text through one layer, and as many without sharing any
            "counts": torch.tensor(counts),
        }

    def _chosen(self, model: MemoryModel, layer: int) -> Chosen:
        memories = torch.from_numpy(self.selection.memories[layer]).to(model.device)
        baselines = self.baselines.of_layer(layer, model.memories[layer], model.device)
        return choose(model, layer, memories, baselines[memories])

    def _estimates(self, estimator: Estimator, batch: Batch) -> dict[str, Tensor]:
        """The estimates of the selected memories, example × memory."""
        starts = np.cumsum([0, *map(len, self.selection.memories.values())])
        first = dict(zip(self.selection.memories, starts.tolist(), strict=False))
        rows = {name: torch.zeros(len(batch.examples), len(self.selection)) for name in ("effect", "prediction")}

        def add(quantity: Quantity, layer: int, memories: slice, numbers: Tensor) -> None:
            if quantity not in rows or layer not in first:
                return
            selected = self.selection.memories[layer]
            here = np.flatnonzero((selected >= memories.start) & (selected < memories.stop))
            rows[quantity][:, first[layer] + here] += numbers[:, selected[here] - memories.start].float().cpu()

        estimator.run(batch, add)
        return {name: tensor.to(estimator.model.device) for name, tensor in rows.items()}
