"""Sums of effects over examples, for every memory, and the examples where each helped and hurt most."""

from collections import Counter
from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.effects.estimate import Quantity
from ffscope.search.top import RunningTop
from ffscope.search.trigger_keys import coefficients_of, prefixes_of

LISTED = 5
"""How many examples are listed per memory on either side."""
_QUANTITIES = get_args(Quantity)
_SIZES = ("effect", "direct", "scale")

State = dict[str, Tensor]


class Sums:
    """Running sums of every quantity, of some sizes and of squared effects, and running lists of examples. Their size is fixed."""

    def __init__(self, memories: Sequence[int], device: torch.device) -> None:
        self._starts = [sum(memories[:layer]) for layer in range(len(memories))]
        self._total = total = sum(memories)
        names = (*_QUANTITIES, "effect_square", *(f"{name}_size" for name in _SIZES))
        self._sums = {name: torch.zeros(total, dtype=torch.float64, device=device) for name in names}
        self._hurt, self._helped = (RunningTop(total, LISTED, device) for _ in range(2))
        self._counts: Counter[str] = Counter()  # by quantity: the examples at which it was added
        self.count = 0
        self._examples = torch.empty(0, dtype=torch.int64, device=device)
        self._rows: dict[str, Tensor] = {}  # by quantity: the numbers of the batch, example × memory of any layer

    def begin(self, examples: Int[Tensor, "n"]) -> None:
        """Call before the numbers of these examples are added."""
        self._examples = examples.to(self._examples.device)
        self._rows = {}

    def add(self, quantity: Quantity, layer: int, memories: slice, numbers: Float[Tensor, "n memory"]) -> None:
        """Add a quantity of some memories of a layer at the examples."""
        start = self._starts[layer]
        self._row(quantity)[:, start + memories.start : start + memories.stop] = numbers

    def _row(self, quantity: str) -> Tensor:
        if quantity not in self._rows:
            self._rows[quantity] = torch.zeros(len(self._examples), self._total, device=self._examples.device)
        return self._rows[quantity]

    def end(self) -> None:
        """Call after them. All layers are summed and listed at once, since on a GPU each call has a fixed cost."""
        for quantity, rows in self._rows.items():
            # In float32 within a batch: in float64, torch would first copy all numbers.
            self._sums[quantity] += rows.sum(0)
            self._counts[quantity] += len(rows)
            if quantity in _SIZES:
                self._sums[f"{quantity}_size"] += rows.abs().sum(0)
        effects = self._rows["effect"]
        self._sums["effect_square"] += effects.square().sum(0)
        every = slice(0, effects.shape[1])
        self._helped.update_rows(effects, self._examples, every)  # the loss rises where the memory helped
        self._hurt.update_rows(effects.neg_(), self._examples, every)
        self.count += len(effects)
        self._rows = {}

    def state(self) -> State:
        """What `merge_states` combines. A quantity that this model does not have at every example is missing."""
        for top in (self._helped, self._hurt):
            top.merge()
        complete = {quantity for quantity, examples in self._counts.items() if examples == self.count}
        sums = {name: tensor for name, tensor in self._sums.items() if name.split("_")[0] in complete}
        tops = {"helped": self._helped.keys, "hurt": self._hurt.keys, "count": torch.tensor(self.count)}
        return {name: tensor.cpu() for name, tensor in {**sums, **tops}.items()}


def merge_states(state: State, other: State) -> State:
    """The state of the examples of both."""
    merged = {}
    for name in state.keys() & other.keys():
        if name in ("helped", "hurt"):
            merged[name] = torch.cat([state[name], other[name]], 1).sort(1, descending=True).values[:, :LISTED]
        else:
            merged[name] = state[name] + other[name]
    return merged


def listed(keys: Int[Tensor, "memory top"]) -> tuple[list[list[int]], list[list[float]]]:
    """The examples of a list, and how far each changed, for every memory."""
    counts = (keys > 0).sum(1).tolist()
    examples, changes = prefixes_of(keys).tolist(), coefficients_of(keys).tolist()
    return (
        [row[:count] for row, count in zip(examples, counts, strict=True)],
        [row[:count] for row, count in zip(changes, counts, strict=True)],
    )
