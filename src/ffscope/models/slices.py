"""Where memories are in a model's weights: the axis of each weight that runs over them, and how to take some of them out."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from ffscope.axes import Array, Float, Int
from ffscope.models.memory_model import MemoryModel
from ffscope.models.parts import DensePart, ExpertsPart, Part

Order = Literal["once", "in halves", "interleaved"]


@dataclass(frozen=True)
class Slice:
    """A weight of a part with an axis over its memories: once, or twice where one projection computes gate and key.

    Experts have their memories along that axis one expert at a time; the experts themselves are axis 0.
    """

    name: str  # in the model's state dict
    axis: int
    order: Order = "once"
    is_value: bool = False

    @property
    def factor(self) -> int:
        """How many entries of the axis belong to one memory."""
        return 1 if self.order == "once" else 2

    def select(self, weight: Tensor, kept: list[Array]) -> Tensor:
        """The weight with some memories only: their numbers, for each expert where there are experts."""
        if len(kept) == 1:
            return weight.index_select(self.axis, self._entries(weight, kept[0], self.axis))
        axis = self.axis - 1
        return torch.stack(
            [
                expert.index_select(axis, self._entries(expert, row, axis))
                for expert, row in zip(weight, kept, strict=True)
            ]
        )

    def rows(self, weight: Tensor, memories: Int[Tensor, "some"]) -> Float[Tensor, "some hidden"]:
        """The values of some memories of the part, by their numbers in it."""
        by_memory = self._by_memory(weight)
        return by_memory[_at(by_memory, memories)]

    def with_rows(self, weight: Tensor, memories: Int[Tensor, "some"], rows: Float[Tensor, "some hidden"]) -> Tensor:
        """A copy in which some memories have other values."""
        copy = weight.clone()
        by_memory = self._by_memory(copy)
        by_memory[_at(by_memory, memories)] = rows.to(copy)
        return copy

    def _by_memory(self, weight: Tensor) -> Tensor:
        """A view of the values: memory × hidden, for experts expert × memory × hidden."""
        return weight.movedim(self.axis, -2)

    def _entries(self, weight: Tensor, kept: Array, axis: int) -> Tensor:
        memories = torch.from_numpy(kept).to(weight.device)
        if self.order == "once":
            return memories
        if self.order == "interleaved":
            return torch.stack([2 * memories, 2 * memories + 1], 1).flatten()
        return torch.cat([memories, memories + weight.shape[axis] // 2])


def _at(by_memory: Tensor, memories: Tensor) -> tuple[Tensor, ...]:
    memories = memories.to(by_memory.device)
    if by_memory.dim() == 2:
        return (memories,)
    return memories // by_memory.shape[1], memories % by_memory.shape[1]


@dataclass(frozen=True)
class Sliced:
    """A part of a layer, its weights that have its memories, and the bias of its output projection."""

    layer: int
    part: Part
    slices: tuple[Slice, ...]
    bias: str | None  # in the model's state dict

    @property
    def experts(self) -> int:
        """The number of experts; 1 in a dense part."""
        return self.part.experts if isinstance(self.part, ExpertsPart) else 1

    @property
    def value(self) -> Slice:
        """Where its values are."""
        return next(piece for piece in self.slices if piece.is_value)

    @property
    def width(self) -> int:
        """The number of memories, of each expert."""
        return self.part.memories // self.experts

    def kept(self, removed: Array) -> list[Array]:
        """The numbers of the memories of each expert that stay, from the layer's mask of those that go."""
        return [(~row).nonzero()[0] for row in self.mine(removed).reshape(self.experts, self.width)]

    def mine(self, of_layer: Array) -> Array:
        """The entries of the part's memories, from one for every memory of its layer."""
        return of_layer[self.part.offset : self.part.offset + self.part.memories]


def sliced_parts(model: MemoryModel) -> list[Sliced]:
    """Every part of a model with its weights."""
    names = {module: name for name, module in model.model.named_modules()}
    return [_sliced(layer, part, names) for layer in range(model.layers) for part in model.layer(layer).parts]


def _sliced(layer: int, part: Part, names: dict[nn.Module, str]) -> Sliced:
    if isinstance(part, ExpertsPart):
        return Sliced(layer, part, tuple(_of_experts(part, names[part.source])), None)
    assert isinstance(part, DensePart)
    # A bias that is multiplied by a weight for every token, as a shared expert's is, cannot hold a constant.
    constant = part.out.bias is not None and type(part) is DensePart
    return Sliced(layer, part, tuple(_of_projections(part, names)), f"{names[part.out]}.bias" if constant else None)


def _of_projections(part: DensePart, names: dict[nn.Module, str]) -> Iterator[Slice]:
    order: Order = "in halves" if part.spec.fused else "once"
    for module in part.key_modules():
        yield Slice(f"{names[module]}.weight", 1 if isinstance(module, Conv1D) else 0, order)
        if module.bias is not None:
            yield Slice(f"{names[module]}.bias", 0, order)
    yield Slice(f"{names[part.out]}.weight", 0 if isinstance(part.out, Conv1D) else 1, is_value=True)


def _of_experts(part: ExpertsPart, path: str) -> Iterator[Slice]:
    module = part.source
    order: Order = "once" if not part.gated else "in halves" if module.is_concatenated else "interleaved"
    keys = f"{path}.gate_up_proj" if part.gated else f"{path}.up_proj"
    yield Slice(keys, 2 if module.is_transposed else 1, order)
    if getattr(module, "has_bias", False):
        yield Slice(f"{keys}_bias", 1, order)
    yield Slice(f"{path}.down_proj", 1 if module.is_transposed else 2, is_value=True)
