"""The loss without whole groups of memories, exactly: all dead ones, the least important ones, as many at random."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.effects.ablation import last_outputs
from ffscope.effects.baseline import Baselines
from ffscope.effects.readout import Losses, read_losses
from ffscope.effects.texts import Batch
from ffscope.models.edits import set_where
from ffscope.models.memory_model import MemoryModel

State = dict[str, Tensor]


@dataclass(frozen=True)
class Group:
    """Memories that are taken away together: for each layer, whether each is one of them."""

    name: str
    members: tuple[Array, ...]
    random: bool = False  # as many as the group of that name, at random

    def __len__(self) -> int:
        return int(sum(map(np.count_nonzero, self.members)))

    @property
    def first_layer(self) -> int:
        """The lowest layer that has a memory of the group; the first for an empty one."""
        return next((layer for layer, members in enumerate(self.members) if members.any()), 0)


def make_groups(named: dict[str, Array], memories: Sequence[int], seed: int) -> list[Group]:
    """Groups from masks over all memories of a model, each followed by as many memories at random; empty ones are left out."""
    ends = np.cumsum(memories)[:-1]
    groups = []
    for name, mask in named.items():
        count = int(np.count_nonzero(mask))
        if not count:
            continue
        at_random = np.zeros_like(mask)
        at_random[np.random.default_rng([seed, *name.encode()]).permutation(len(mask))[:count]] = True
        groups.append(Group(name, tuple(np.split(mask, ends))))
        groups.append(Group(name, tuple(np.split(at_random, ends)), random=True))
    return groups


def digest_of(groups: Sequence[Group]) -> bytes:
    """Which groups these are, as bytes."""
    return b"".join(group.name.encode() + np.packbits(np.concatenate(group.members)).tobytes() for group in groups)


def smallest(sizes: Array, share: float) -> Array:
    """Whether each is in this share of the smallest; of equal ones the first."""
    mask = np.zeros(len(sizes), dtype=bool)
    mask[np.argsort(sizes, kind="stable")[: round(share * len(sizes))]] = True
    return mask


@contextmanager
def without(model: MemoryModel, group: Group, baselines: Baselines) -> Iterator[None]:
    """Within the block the coefficients of a group are the baselines, in this thread."""
    with ExitStack() as stack:
        for layer, members in enumerate(group.members):
            if not members.any():
                continue
            mask = torch.from_numpy(members).to(model.device)
            rows = baselines.of_layer(layer, model.memories[layer], model.device)
            for part in model.layer(layer).parts:
                stack.enter_context(part.tap(set_where(mask, rows)))
        yield


@dataclass(frozen=True)
class WithoutGroups:
    """f(model, batches) returns sums over the examples, one number per group."""

    groups: tuple[Group, ...]
    baselines: Baselines
    bos: int | None

    def __call__(self, model: MemoryModel, batches: list[Batch]) -> State:
        """The sums of the changes of the loss and of the prediction's log-probability, and of their squares."""
        names = ("effect", "effect_square", "prediction", "prediction_square")
        state: State = {name: torch.zeros(len(self.groups), dtype=torch.float64) for name in names}
        for batch in batches:
            intact = self._losses(model, batch)
            for number, group in enumerate(self.groups):
                ablated = self._losses(model, batch, group, intact)
                changes = {"effect": ablated.loss - intact.loss, "prediction": ablated.log_prob - intact.log_prob}
                for name, change in changes.items():
                    state[name][number] += change.double().sum().cpu()
                    state[f"{name}_square"][number] += change.double().square().sum().cpu()
        return {**state, "count": torch.tensor(sum(len(batch.examples) for batch in batches))}

    def _losses(
        self, model: MemoryModel, batch: Batch, group: Group | None = None, intact: Losses | None = None
    ) -> Losses:
        """The losses of a batch, without a group; the log-probabilities are of the tokens that were predicted with it."""
        places = batch.places(model)
        with nullcontext() if group is None else without(model, group, self.baselines):
            states = last_outputs(model, batch.inputs(model, self.bos), places.rows, places.positions)
        return read_losses(model, states, places.targets, None if intact is None else intact.prediction)
