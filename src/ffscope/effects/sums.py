"""Sums of effects over examples, for every memory, and the examples where each helped and hurt most."""

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
        total = sum(memories)
        names = (*_QUANTITIES, "effect_square", *(f"{name}_size" for name in _SIZES))
        self._sums = {name: torch.zeros(total, dtype=torch.float64, device=device) for name in names}
        self._hurt, self._helped = (RunningTop(total, LISTED, device) for _ in range(2))
        self._begun = 0
        self._counted: dict[
            str, tuple[int, int]
        ] = {}  # by quantity: the last batch that it was added in, and its examples so far
        self.count = 0
        self._examples = torch.empty(0, dtype=torch.int64, device=device)
        self._effects = torch.empty(0, total, device=device)

    def begin(self, examples: Int[Tensor, "n"]) -> None:
        """Call before the numbers of these examples are added."""
        self._examples = examples.to(self._examples.device)
        self._effects = self._effects.new_zeros(len(examples), self._effects.shape[1])
        self.count += len(examples)
        self._begun += 1

    def add(self, quantity: Quantity, layer: int, memories: slice, numbers: Float[Tensor, "n memory"]) -> None:
        """Add a quantity of some memories of a layer at the examples."""
        numbers = numbers.float().to(self._examples.device)
        start = self._starts[layer]
        at = slice(start + memories.start, start + memories.stop)
        last, examples = self._counted.get(quantity, (0, 0))
        self._counted[quantity] = self._begun, examples + (last != self._begun) * len(self._examples)
        # In float32 within a batch: in float64, torch would first copy all numbers.
        self._sums[quantity][at] += numbers.sum(0)
        if quantity in _SIZES:
            self._sums[f"{quantity}_size"][at] += numbers.abs().sum(0)
        if quantity == "effect":
            self._effects[:, at] = numbers

    def end(self) -> None:
        """Call after them. The effects of all layers are listed at once, since each update of a list makes a GPU wait."""
        self._sums["effect_square"] += self._effects.square().sum(0)
        every = slice(0, self._effects.shape[1])
        self._helped.update_rows(self._effects, self._examples, every)  # the loss rises where the memory helped
        self._hurt.update_rows(self._effects.neg_(), self._examples, every)

    def state(self) -> State:
        """What `merge_states` combines. A quantity that this model does not have at every example is missing."""
        for top in (self._helped, self._hurt):
            top.merge()
        complete = {name for name, (_, examples) in self._counted.items() if examples == self.count}
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
