"""Memories that share an output projection: their keys and values, and the place where coefficients are read and changed."""

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.activations import ACT2FN
from transformers.pytorch_utils import Conv1D

from ffscope.axes import Float
from ffscope.errors import LayoutError
from ffscope.models.families import Dense, Experts
from ffscope.models.hooks import attach, detach, find, first_tensor

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Reader = Callable[["Part", Tensor, int], Tensor | None]
"""Gets a part, its coefficients (batch pos memory) and how many positions a cache holds; a tensor it returns replaces them."""


def projection(module: nn.Module) -> Float[Tensor, "inputs outputs"]:
    """A projection's matrix, inputs first: GPT-2's Conv1D stores it so, a Linear transposed."""
    weight = getattr(module, "weight", None)
    if not isinstance(module, nn.Linear | Conv1D) or weight is None or not weight.is_floating_point():
        raise LayoutError(
            f"The feed-forward layer holds a {type(module).__name__}, whose weights cannot be read as keys or values. "
            "Expected a Linear with floating-point weights: load the model unquantized, with adapters merged."
        )
    return weight.detach() if isinstance(module, Conv1D) else weight.detach().T


def activation(block: nn.Module, path: str) -> Callable[[Tensor], Tensor]:
    """The activation at a path of the block, or the one that `fn:NAME` names."""
    return ACT2FN[path.removeprefix("fn:")] if path.startswith("fn:") else find(block, path)


class Part(ABC):
    """Memories that share one output projection. Most layers have one part; a mixture with shared experts has two."""

    gated: bool
    memories: int
    source: nn.Module  # its arguments are all that `recompute` needs

    def __init__(self, block: nn.Module, depth: int) -> None:
        self.block = block
        self.depth = depth  # of the block in its stack
        self.offset = 0  # of its first memory in the layer
        self._readers: list[tuple[int, Reader]] = []
        self._handles: list[RemovableHandle] = []
        self._lock = threading.Lock()
        self._running = threading.local()

    @abstractmethod
    def keys(self) -> tuple[Tensor, ...]:
        """The key, or gate and key, each memory × hidden."""

    @abstractmethod
    def key_biases(self) -> tuple[Tensor | None, ...]:
        """What is added to x·key, in the order of `keys`."""

    @abstractmethod
    def values(self) -> Float[Tensor, "memory hidden"]:
        """The rows of the output projection."""

    @abstractmethod
    def recompute(self, arguments: Arguments) -> Tensor:
        """The coefficients made from `keys()` alone, given what `source` was called with."""

    @abstractmethod
    def bias(self, arguments: Arguments) -> Tensor | None:
        """What the output projection adds; in a mixture it depends on the routing."""

    @abstractmethod
    def _attach(self) -> list[RemovableHandle]:
        """Hook the module whose input the coefficients are."""

    @contextmanager
    def tap(self, reader: Reader) -> Iterator[None]:
        """Let `reader` see, and change, the coefficients of every run in this thread. Later taps see what earlier ones made."""
        entry = (threading.get_ident(), reader)
        with self._lock:
            self._readers.append(entry)
            if not self._handles:
                self._handles = [attach(self.block, "in", self._enter), *self._attach()]
        try:
            yield
        finally:
            with self._lock:
                self._readers.remove(entry)
                if not self._readers:
                    for handle in self._handles:
                        detach(handle)
                    self._handles = []

    def _mine(self) -> list[Reader]:
        """The readers of the thread that asks."""
        me = threading.get_ident()
        return [reader for owner, reader in tuple(self._readers) if owner == me]

    def _enter(self, _block: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        # Some families flatten batch × position inside the block, so the two sizes are kept from its entrance.
        if self._mine():
            (kwargs,) = rest
            self._running.shape = first_tensor(args or kwargs).shape[:2]
            self._running.past = self._cached((*args, *kwargs.values()))

    def _cached(self, given: tuple[Any, ...]) -> int:
        """How many positions came before this call, in generation with a cache."""
        cache: Any = next((value for value in given if hasattr(value, "get_seq_length")), None)
        # Asked of this block's own entry: those of earlier blocks hold this call's positions already.
        return 0 if cache is None else cache.get_seq_length(self.depth)

    def _read(self, given: Tensor) -> Tensor:
        """The coefficients after this thread's readers; the very same tensor where none of them changed it."""
        before = after = given.reshape(*self._running.shape, -1)
        for reader in self._mine():
            made = reader(self, after, self._running.past)
            after = after if made is None else made
        return given if after is before else after.reshape(given.shape)


class DensePart(Part):
    """Keys and values as projections of the block."""

    def __init__(self, block: nn.Module, depth: int, spec: Dense) -> None:
        super().__init__(block, depth)
        self.spec = spec
        self.source = find(block, spec.key)
        self.out = find(block, spec.value)
        self.act = activation(block, spec.act)
        self.gated = bool(spec.gate or spec.fused)
        self.memories = projection(self.out).shape[0]

    def keys(self) -> tuple[Tensor, ...]:
        return self._in_order([projection(module).T for module in self._key_modules()])

    def key_biases(self) -> tuple[Tensor | None, ...]:
        return self._in_order([module.bias for module in self._key_modules()])

    def values(self) -> Float[Tensor, "memory hidden"]:
        return projection(self.out)

    def recompute(self, arguments: Arguments) -> Tensor:
        x = first_tensor(arguments[0] or arguments[1])
        sums = [nn.functional.linear(x, key, bias) for key, bias in zip(self.keys(), self.key_biases(), strict=True)]
        return self.act(sums[0]) if len(sums) == 1 else self.act(sums[0]) * sums[1]

    def bias(self, arguments: Arguments) -> Tensor | None:
        return self.out.bias

    def _key_modules(self) -> list[nn.Module]:
        return [find(self.block, path) for path in (self.spec.gate, self.spec.key) if path]

    def _in_order(self, found: list[Any]) -> tuple[Any, ...]:
        """One entry per key; a fused projection's is cut in two, gate first."""
        if self.spec.fused is None:
            return tuple(found)
        halves = (None, None) if found[0] is None else found[0].chunk(2)
        return tuple(halves) if self.spec.fused == "gate-key" else tuple(reversed(halves))

    def _attach(self) -> list[RemovableHandle]:
        def observe(_module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
            if not self._mine():
                return None
            read = self._read(args[0])
            return None if read is args[0] else ((read, *args[1:]), rest[0])

        return [attach(self.out, "in", observe)]


class WeighedPart(DensePart):
    """A dense part whose output is multiplied by a number of its own, as some mixtures do with their shared expert.

    A coefficient is what multiplies the value, so it holds that number.
    """

    def __init__(self, block: nn.Module, depth: int, spec: Dense) -> None:
        super().__init__(block, depth, spec)
        self.weigher: Any = find(block, spec.weight or "")

    def recompute(self, arguments: Arguments) -> Tensor:
        return super().recompute(arguments) * self._weight(first_tensor(arguments[0] or arguments[1]))

    def bias(self, arguments: Arguments) -> Tensor | None:
        bias = super().bias(arguments)
        return None if bias is None else bias * self._weight(first_tensor(arguments[0] or arguments[1]))

    def _weight(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, projection(self.weigher).T, self.weigher.bias).sigmoid()

    def _attach(self) -> list[RemovableHandle]:
        def remember(_module: nn.Module, args: tuple[Any, ...], *_rest: Any) -> None:
            if self._mine():
                self._running.weight = self._weight(args[0])

        def observe(_module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
            if not self._mine():
                return None
            weight = self._running.weight
            given = args[0] * weight
            read = self._read(given)
            # A weight that rounds to 0 lets nothing through, whatever the coefficients.
            return None if read is given else ((torch.where(weight == 0, args[0], read / weight), *args[1:]), rest[0])

        return [attach(self.source, "in", remember), attach(self.out, "in", observe)]


class ExpertsPart(Part):
    """Experts as stacked weights: there is no projection to hook, so the coefficients are made again from what it was called with.

    A coefficient is what multiplies the value, so it holds the router's weight; an expert that is not routed to gives 0.
    Memory i of expert e is number e × (memories of an expert) + i.
    """

    def __init__(self, block: nn.Module, depth: int, spec: Experts) -> None:
        super().__init__(block, depth)
        self.source: Any = find(block, spec.path)
        if getattr(self.source, "has_post_expert_norm", False):
            raise LayoutError(
                "Each expert's output is normalised before the router's weight, so no coefficient multiplies a value."
            )
        self.gated = getattr(self.source, "has_gate", True)
        self.experts, self.per_expert, _ = self._values().shape
        self.memories = self.experts * self.per_expert

    def keys(self) -> tuple[Tensor, ...]:
        return tuple(key.reshape(self.memories, -1) for key in self._split(self._stacked("weight")))

    def key_biases(self) -> tuple[Tensor | None, ...]:
        stacked = self._stacked("bias")
        if stacked is None:
            return (None,) * (1 + self.gated)
        return tuple(bias.reshape(self.memories) for bias in self._split(stacked))

    def values(self) -> Float[Tensor, "memory hidden"]:
        return self._values().reshape(self.memories, -1)

    def recompute(self, arguments: Arguments) -> Tensor:
        x, routing = self._routed(arguments)
        sums = [
            nn.functional.linear(x, key, bias).unflatten(-1, (self.experts, self.per_expert))
            for key, bias in zip(self.keys(), self.key_biases(), strict=True)
        ]
        return (self._gate(self._join(sums)) * routing.unsqueeze(-1)).flatten(-2)

    def bias(self, arguments: Arguments) -> Tensor | None:
        if not getattr(self.source, "has_bias", False):
            return None
        _, routing = self._routed(arguments)
        return routing @ self.source.down_proj_bias

    def coefficients(self, arguments: Arguments) -> Float[Tensor, "tokens memory"]:
        """The coefficients, computed for the routed experts alone, with the weights as the module holds them."""
        x, routing = self._routed(arguments)
        keys, biases = self._stacked("weight"), self._stacked("bias")
        found = x.new_zeros(x.shape[0], self.experts, self.per_expert)
        for expert in routing.any(0).nonzero()[:, 0].tolist():
            rows = routing[:, expert].nonzero()[:, 0]
            sums = nn.functional.linear(x[rows], keys[expert], None if biases is None else biases[expert])
            found[rows, expert] = self._gate(sums) * routing[rows, expert, None]
        return found.flatten(-2)

    def _routed(self, arguments: Arguments) -> tuple[Tensor, Float[Tensor, "tokens experts"]]:
        """x, and each expert's weight for each token."""
        args, kwargs = arguments
        bound = inspect.signature(self.source.forward).bind(*args, **kwargs).arguments.values()
        x, chosen, weights = list(bound)[:3]
        x, chosen = x.reshape(-1, x.shape[-1]), chosen.reshape(-1, chosen.shape[-1])
        routing = x.new_zeros(x.shape[0], self.experts)
        return x, routing.scatter_add(1, chosen, weights.reshape(chosen.shape).to(x.dtype))

    def _values(self) -> Float[Tensor, "experts memory hidden"]:
        stacked = self.source.down_proj.detach()
        return stacked if self.source.is_transposed else stacked.transpose(1, 2)

    def _stacked(self, what: str) -> Any:
        """The experts' key weights (experts × outputs × hidden) or biases (experts × outputs), as one tensor."""
        name = "gate_up_proj" if self.gated else "up_proj"
        if what == "bias":
            return getattr(self.source, f"{name}_bias") if getattr(self.source, "has_bias", False) else None
        stacked = getattr(self.source, name).detach()
        return stacked.transpose(1, 2) if self.source.is_transposed else stacked

    def _split(self, stacked: Tensor) -> tuple[Tensor, ...]:
        """Gate and key of every expert; some families put them one after the other, some in turn."""
        if not self.gated:
            return (stacked,)
        return stacked.chunk(2, dim=1) if self.source.is_concatenated else (stacked[:, ::2], stacked[:, 1::2])

    def _join(self, sums: list[Tensor]) -> Tensor:
        if not self.gated:
            return sums[0]
        return torch.cat(sums, -1) if self.source.is_concatenated else torch.stack(sums, -1).flatten(-2)

    def _gate(self, sums: Tensor) -> Tensor:
        return self.source._apply_gate(sums) if self.gated else self.source.act_fn(sums)

    def _attach(self) -> list[RemovableHandle]:
        def observe(_module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Tensor | None:
            if not self._mine():
                return None
            kwargs, output = rest
            given = self.coefficients((args, kwargs))
            read = self._read(given)
            if read is given:
                return None
            # Made anew, not mended: a norm behind it would blow up the rounding of what should cancel.
            bias = self.bias((args, kwargs))
            made = read @ self.values()
            return (made if bias is None else made + bias).reshape(output.shape).to(output.dtype)

        return [attach(self.source, "out", observe)]


def make_part(block: nn.Module, depth: int, spec: Dense | Experts) -> Part:
    """A row's part, at home in a block."""
    if isinstance(spec, Experts):
        return ExpertsPart(block, depth, spec)
    return (WeighedPart if spec.weight else DensePart)(block, depth, spec)
