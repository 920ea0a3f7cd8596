"""Memories that share an output projection: their keys and values, and the hooks that read and change coefficients."""

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers.activations import ACT2FN
from transformers.pytorch_utils import Conv1D

from ffscope.axes import Float
from ffscope.errors import LayoutError
from ffscope.models.families import Dense, Experts
from ffscope.models.hooks import attach, detach, find, first_tensor, tap
from ffscope.models.placement import stored

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Reader = Callable[["Part", Tensor, int], Tensor | None]
"""Takes a part, its coefficients (batch pos memory) and the number of cached positions; a tensor it returns replaces them."""
GradientReader = Callable[["Part", Tensor, Tensor], None]
"""Takes a part, its coefficients and the gradient with respect to them (batch pos memory)."""


def projection(module: nn.Module, *, loaded: bool = True) -> Float[Tensor, "inputs outputs"]:
    """A projection's matrix, inputs × outputs: GPT-2's Conv1D stores it this way, a Linear transposed.

    Without `loaded`, an offloaded matrix has a shape and no numbers.
    """
    weight = getattr(module, "weight", None)
    if not isinstance(module, nn.Linear | Conv1D) or weight is None or not weight.is_floating_point():
        raise LayoutError(
            f"The feed-forward layer contains a {type(module).__name__}, whose weights cannot be read as keys or values. "
            "Expected a Linear with floating-point weights: load the model unquantized, with adapters merged."
        )
    weight = (stored(module, "weight") if loaded else weight).detach()
    return weight if isinstance(module, Conv1D) else weight.T


def activation(block: nn.Module, path: str) -> Callable[[Tensor], Tensor]:
    """The activation at a path in the block, or the function NAME for `fn:NAME`."""
    return ACT2FN[path.removeprefix("fn:")] if path.startswith("fn:") else find(block, path)


def differentiable(tensor: Tensor) -> Tensor:
    """A view of a tensor, if it depends on coefficients of lower layers; else a copy from which gradients start."""
    return tensor.view_as(tensor) if tensor.requires_grad else tensor.detach().clone().requires_grad_()


class Part(ABC):
    """Memories that share one output projection. Most layers have one part; a mixture with shared experts has two."""

    gated: bool
    memories: int
    source: nn.Module  # `recompute` needs only the arguments of this module

    def __init__(self, block: nn.Module, depth: int) -> None:
        self.block = block
        self.depth = depth  # index of the block in its stack
        self.offset = 0  # index of its first memory in the layer
        self._readers: list[tuple[int, Reader]] = []
        self._handles: list[RemovableHandle] = []
        self._lock = threading.Lock()
        self._running = threading.local()

    @abstractmethod
    def keys(self) -> tuple[Tensor, ...]:
        """The key, or gate and key, each memory × hidden."""

    @abstractmethod
    def key_biases(self) -> tuple[Tensor | None, ...]:
        """The biases added to x·key, in the order of `keys`."""

    @abstractmethod
    def values(self) -> Float[Tensor, "memory hidden"]:
        """The rows of the output projection."""

    @abstractmethod
    def recompute(self, arguments: Arguments) -> Tensor:
        """The coefficients computed from `keys()` and the arguments of `source` alone."""

    @abstractmethod
    def bias(self, arguments: Arguments) -> Tensor | None:
        """The bias of the output projection; in a mixture it depends on the routing."""

    @abstractmethod
    def _attach(self) -> list[RemovableHandle]:
        """Hook the module whose input is the coefficients."""

    @contextmanager
    def tap(self, reader: Reader) -> Iterator[None]:
        """Let `reader` see and change the coefficients of every pass in this thread. Later taps get the results of earlier ones."""
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

    def tap_gradients(self, reader: GradientReader, *, everywhere: bool = False) -> AbstractContextManager[None]:
        """Call `reader` with the coefficients and their gradients in the backward pass of every pass made within the block."""

        def watch(_part: Part, coefficients: Tensor, _past: int) -> Tensor:
            # A new tensor, so that the output projection uses the one whose gradient is watched.
            watched = differentiable(coefficients)
            watched.register_hook(lambda gradient: reader(self, coefficients.detach(), gradient))
            return watched

        return self.tap(watch)

    def _own_readers(self) -> list[Reader]:
        """The readers of the calling thread."""
        thread = threading.get_ident()
        return [reader for owner, reader in tuple(self._readers) if owner == thread]

    def _enter(self, _block: nn.Module, args: tuple[Any, ...], *rest: Any) -> None:
        # Some families flatten batch × position inside the block, so both sizes are recorded at its input.
        if self._own_readers():
            (kwargs,) = rest
            self._running.shape = first_tensor(args or kwargs).shape[:2]
            self._running.past = self._cached_positions((*args, *kwargs.values()))

    def _cached_positions(self, arguments: tuple[Any, ...]) -> int:
        """The number of positions before this call, when generating with a cache."""
        cache: Any = next((value for value in arguments if hasattr(value, "get_seq_length")), None)
        # From this block's entry in the cache: those of earlier blocks already include the positions of this call.
        return 0 if cache is None else cache.get_seq_length(self.depth)

    def _apply_readers(self, coefficients: Tensor) -> Tensor:
        """The coefficients after this thread's readers; the same tensor object if none of them changed it."""
        before = after = coefficients.reshape(*self._running.shape, -1)
        for reader in self._own_readers():
            changed = reader(self, after, self._running.past)
            after = after if changed is None else changed
        return coefficients if after is before else after.reshape(coefficients.shape)


class DensePart(Part):
    """Keys and values as projections of the block."""

    def __init__(self, block: nn.Module, depth: int, spec: Dense) -> None:
        super().__init__(block, depth)
        self.spec = spec
        self.source = find(block, spec.key)
        self.out = find(block, spec.value)
        self.act = activation(block, spec.act)
        self.gated = bool(spec.gate or spec.fused)
        self.memories = projection(self.out, loaded=False).shape[0]

    def keys(self) -> tuple[Tensor, ...]:
        return self._in_order([projection(module).T for module in self.key_modules()])

    def key_biases(self) -> tuple[Tensor | None, ...]:
        return self._in_order([stored(module, "bias") for module in self.key_modules()])

    def values(self) -> Float[Tensor, "memory hidden"]:
        return projection(self.out)

    def recompute(self, arguments: Arguments) -> Tensor:
        x, keys = first_tensor(arguments[0] or arguments[1]), self.keys()
        x = x.to(keys[0].device)  # where the module moves it
        sums = [nn.functional.linear(x, key, bias) for key, bias in zip(keys, self.key_biases(), strict=True)]
        return self.act(sums[0]) if len(sums) == 1 else self.act(sums[0]) * sums[1]

    def bias(self, arguments: Arguments) -> Tensor | None:
        return stored(self.out, "bias")

    def key_modules(self) -> list[nn.Module]:
        """The projections that compute the gate and the key, or both at once."""
        return [find(self.block, path) for path in (self.spec.gate, self.spec.key) if path]

    def _in_order(self, entries: list[Any]) -> tuple[Any, ...]:
        """One entry per key; the entry of a fused projection is split in two, gate first."""
        if self.spec.fused is None:
            return tuple(entries)
        halves = (None, None) if entries[0] is None else entries[0].chunk(2)
        return tuple(halves) if self.spec.fused == "gate-key" else tuple(reversed(halves))

    def _attach(self) -> list[RemovableHandle]:
        def observe(_module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
            if not self._own_readers():
                return None
            coefficients = self._apply_readers(args[0])
            return None if coefficients is args[0] else ((coefficients, *args[1:]), rest[0])

        return [attach(self.out, "in", observe)]


class WeightedPart(DensePart):
    """A dense part whose output is multiplied by a weight per token, like the shared expert of some mixtures.

    A coefficient is what multiplies the value, so it includes this weight.
    """

    def __init__(self, block: nn.Module, depth: int, spec: Dense) -> None:
        super().__init__(block, depth, spec)
        self.weight_projection: Any = find(block, spec.weight or "")

    def recompute(self, arguments: Arguments) -> Tensor:
        return super().recompute(arguments) * self._weight(first_tensor(arguments[0] or arguments[1]))

    def bias(self, arguments: Arguments) -> Tensor | None:
        bias = super().bias(arguments)
        return None if bias is None else bias * self._weight(first_tensor(arguments[0] or arguments[1]))

    def _weight(self, x: Tensor) -> Tensor:
        matrix, bias = projection(self.weight_projection), stored(self.weight_projection, "bias")
        return nn.functional.linear(x.to(matrix.device), matrix.T, bias).sigmoid()

    def _attach(self) -> list[RemovableHandle]:
        def remember(_module: nn.Module, args: tuple[Any, ...], *_rest: Any) -> None:
            if self._own_readers():
                self._running.weight = self._weight(args[0])

        def observe(_module: nn.Module, args: tuple[Any, ...], *rest: Any) -> Any:
            if not self._own_readers():
                return None
            weight = self._running.weight
            coefficients = args[0] * weight
            changed = self._apply_readers(coefficients)
            if changed is coefficients:
                return None
            # If the weight is rounded to 0, the output is 0 whatever the coefficients; a division would make the gradient NaN.
            divided = changed / torch.where(weight == 0, 1.0, weight)
            return (torch.where(weight == 0, args[0], divided), *args[1:]), rest[0]

        return [attach(self.source, "in", remember), attach(self.out, "in", observe)]


class ExpertsPart(Part):
    """Experts as stacked weights: there is no projection to hook, so the coefficients are recomputed from the module's arguments.

    A coefficient is what multiplies the value, so it includes the router's weight; it is 0 in an expert that is not routed to.
    Memory i of expert e has the index e × (memories per expert) + i.
    """

    def __init__(self, block: nn.Module, depth: int, spec: Experts) -> None:
        super().__init__(block, depth)
        self.source: Any = find(block, spec.path)
        if getattr(self.source, "has_post_expert_norm", False):
            raise LayoutError(
                "Expected experts whose outputs are only weighted and summed; found a norm after each expert, so no coefficient "
                "multiplies a value. Such mixtures are not supported."
            )
        self.gated = getattr(self.source, "has_gate", True)
        self.experts, self.per_expert, _ = self._oriented(self.source.down_proj).shape
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
        return routing @ stored(self.source, "down_proj_bias")

    def coefficients(self, arguments: Arguments) -> Float[Tensor, "tokens memory"]:
        """The coefficients, computed for the routed experts only, with the weights as stored in the module."""
        x, routing = self._routed(arguments)
        keys, biases = self._stacked("weight"), self._stacked("bias")
        coefficients = x.new_zeros(x.shape[0], self.experts, self.per_expert)
        for expert in routing.any(0).nonzero()[:, 0].tolist():
            rows = routing[:, expert].nonzero()[:, 0]
            sums = nn.functional.linear(x[rows], keys[expert], None if biases is None else biases[expert])
            coefficients[rows, expert] = self._gate(sums) * routing[rows, expert, None]
        return coefficients.flatten(-2)

    @contextmanager
    def tap_gradients(self, reader: GradientReader, *, everywhere: bool = False) -> Iterator[None]:
        """The gradients follow from that of the experts' output, which is linear in the coefficients.

        They are 0 in experts that are not routed to, where the coefficients are 0, unless `everywhere` asks for these too.
        """
        kept: list[Tensor] = []

        def keep(_part: Part, coefficients: Tensor, _past: int) -> None:
            kept.append(coefficients.detach())

        def watch(output: Tensor) -> Tensor:
            watched, coefficients = differentiable(output), kept.pop()
            watched.register_hook(
                lambda gradient: reader(self, coefficients, self._gradients(coefficients, gradient, everywhere))
            )
            return watched

        with self.tap(keep), tap(self.source, "out", watch):
            yield

    def _gradients(self, coefficients: Tensor, of_output: Tensor, everywhere: bool) -> Tensor:
        """The gradient with respect to the coefficients, from that of the output."""
        values, of_output = self._values(), of_output.reshape(-1, of_output.shape[-1])
        shape = (len(of_output), self.experts, self.per_expert)
        if everywhere:
            return (of_output @ values.reshape(self.memories, -1).T).reshape(coefficients.shape)
        routed = coefficients.reshape(shape).any(-1)
        gradients = of_output.new_zeros(shape)
        for expert in routed.any(0).nonzero()[:, 0].tolist():
            rows = routed[:, expert].nonzero()[:, 0]
            gradients[rows, expert] = of_output[rows] @ values[expert].T
        return gradients.reshape(coefficients.shape)

    def _routed(self, arguments: Arguments) -> tuple[Tensor, Float[Tensor, "tokens experts"]]:
        """x, and the weight of each expert for each token."""
        args, kwargs = arguments
        bound = inspect.signature(self.source.forward).bind(*args, **kwargs).arguments.values()
        x, chosen, weights = list(bound)[:3]
        x, chosen = x.reshape(-1, x.shape[-1]), chosen.reshape(-1, chosen.shape[-1])
        routing = x.new_zeros(x.shape[0], self.experts)
        return x, routing.scatter_add(1, chosen, weights.reshape(chosen.shape).to(x.dtype))

    def _values(self) -> Float[Tensor, "experts memory hidden"]:
        return self._oriented(stored(self.source, "down_proj").detach())

    def _oriented(self, stacked: Tensor) -> Float[Tensor, "experts memory hidden"]:
        return stacked if self.source.is_transposed else stacked.transpose(1, 2)

    def _stacked(self, kind: str) -> Any:
        """The experts' key weights (experts × outputs × hidden) or biases (experts × outputs), as one tensor."""
        name = "gate_up_proj" if self.gated else "up_proj"
        if kind == "bias":
            return stored(self.source, f"{name}_bias") if getattr(self.source, "has_bias", False) else None
        stacked = stored(self.source, name).detach()
        return stacked.transpose(1, 2) if self.source.is_transposed else stacked

    def _split(self, stacked: Tensor) -> tuple[Tensor, ...]:
        """Gate and key of every expert; some families concatenate them, some interleave them."""
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
            if not self._own_readers():
                return None
            kwargs, output = rest
            coefficients = self.coefficients((args, kwargs))
            changed = self._apply_readers(coefficients)
            if changed is coefficients:
                return None
            # Recomputed, not corrected by a difference: a norm after it would amplify the rounding of terms that should cancel.
            bias = self.bias((args, kwargs))
            product = changed @ self.values()
            return (product if bias is None else product + bias).reshape(output.shape).to(output.dtype)

        return [attach(self.source, "out", observe)]


def make_part(block: nn.Module, depth: int, spec: Dense | Experts) -> Part:
    """The part of a block that a row describes."""
    if isinstance(spec, Experts):
        return ExpertsPart(block, depth, spec)
    return (WeightedPart if spec.weight else DensePart)(block, depth, spec)
