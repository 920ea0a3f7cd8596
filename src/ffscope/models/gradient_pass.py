"""Passes that record what is needed to differentiate them, with respect to the coefficients alone."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from ffscope.axes import Float, Int
from ffscope.errors import GradientError, InputError, first_line
from ffscope.models.attention import kernels_for_any_shape
from ffscope.models.hooks import hooked, tap
from ffscope.models.inputs import Inputs, run
from ffscope.models.memory_model import MemoryModel, StopPass
from ffscope.models.parts import Part

Observe = Callable[[int, Part, Tensor, Tensor], None]
"""Takes a layer, one of its parts, the part's coefficients and the gradient with respect to them (batch pos memory)."""

# In the messages of errors that mean that a model cannot be differentiated.
_WORDS = ("derivative", "does not require grad", "inplace operation", "not implemented")
_CHECKED: WeakSet[MemoryModel] = WeakSet()
_FROZEN: dict[int, tuple[int, list[Any]]] = {}  # by model: how many passes run, and the weights that can be trained
_FREEZING = threading.Lock()


class GradientPass:
    """One pass over a batch, up to the last output at one place per row; `backward` then gives the gradients layer by layer."""

    def __init__(
        self, model: MemoryModel, observe: Observe, *, layers: Iterable[int] | None = None, everywhere: bool = False
    ) -> None:
        """The gradients of some layers, by default of all.

        With `everywhere`, the gradient of an expert's coefficients is also computed where it is not routed to.
        """
        self.model, self._observe, self._everywhere = model, observe, everywhere
        self._layers = tuple(range(model.layers) if layers is None else layers)
        self._seen: set[int] = set()

    def forward(self, inputs: Inputs, rows: Int[Tensor, "n"], positions: Int[Tensor, "n"]) -> Float[Tensor, "n hidden"]:
        """The last output at these places, with its graph."""
        outputs: list[Tensor] = []
        batch = len(next(value for value in inputs.values() if isinstance(value, Tensor)))
        last = self.model.layer(self.model.layers - 1)

        def keep(output: Tensor) -> None:
            outputs.append(
                output.reshape(batch, -1, output.shape[-1])[rows.to(output.device), positions.to(output.device)]
            )
            raise StopPass

        with ExitStack() as stack, suppress(StopPass):
            stack.enter_context(frozen_weights(self.model))
            if self.model not in _CHECKED:
                stack.enter_context(_checking(self.model))
            for layer in self._layers:
                for part in self.model.layer(layer).parts:
                    stack.enter_context(part.tap_gradients(self._reader(layer), everywhere=self._everywhere))
            stack.enter_context(tap(last.module(last.output_site), last.output_site.side, keep))
            stack.enter_context(torch.enable_grad())
            stack.enter_context(kernels_for_any_shape(self.model.device))
            self._run(inputs)
        if not outputs[0].requires_grad:
            raise _not_differentiable("its last output does not depend on any coefficient")
        if len(self._layers) == self.model.layers:
            _CHECKED.add(self.model)
        return outputs[0]

    def _run(self, inputs: Inputs) -> None:
        try:
            run(self.model.model, inputs)
        except InputError as error:
            if isinstance(error.__cause__, RuntimeError) and _is_of_gradients(error.__cause__):
                raise _not_differentiable(first_line(error.__cause__)) from error
            raise

    def backward(self, output: Float[Tensor, "n hidden"], gradient: Float[Tensor, "n hidden"], *, again: bool) -> None:
        """Call `observe` for every part of every layer; `again` says whether another call follows for the same pass."""
        self._seen.clear()
        try:
            output.backward(gradient.to(output), retain_graph=again)
        except RuntimeError as error:
            if not _is_of_gradients(error):  # out of memory, for example
                raise
            raise _not_differentiable(first_line(error)) from error
        missing = [layer for layer in self._layers if layer not in self._seen]
        if missing:
            raise _not_differentiable(f"no gradient reaches layer {missing[-1]}")

    def _reader(self, layer: int) -> Callable[[Part, Tensor, Tensor], None]:
        def read(part: Part, coefficients: Tensor, gradient: Tensor) -> None:
            self._seen.add(layer)
            with torch.no_grad():
                self._observe(layer, part, coefficients, gradient)

        return read


@contextmanager
def _checking(model: MemoryModel) -> Iterator[None]:
    """Raise in the first pass if a module with weights computes something without a graph, as quantized ones may.

    The gradient would flow past it, through the residual, and be wrong without a sign.
    """

    def check(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if any(map(_requires_grad, (*args, *kwargs.values()))) and not _requires_grad(output):
            raise _not_differentiable(f"a {type(module).__name__} through which no gradient passes")

    with ExitStack() as stack:
        for module in model.model.modules():
            if hasattr(module, "weight") or any(True for _ in module.parameters(recurse=False)):
                stack.enter_context(hooked(module, "out", check))
        yield


def _requires_grad(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.requires_grad
    return isinstance(value, tuple | list) and any(map(_requires_grad, value))


def _is_of_gradients(error: Exception) -> bool:
    return any(words in str(error) for words in _WORDS)


def _not_differentiable(reason: str) -> GradientError:
    return GradientError(
        "Effects are estimated from gradients, and this model cannot be differentiated. Expected floating-point weights whose "
        f"modules support it; found: {reason.rstrip('.')}. Load the model unquantized."
    )


@contextmanager
def frozen_weights(model: MemoryModel) -> Iterator[None]:
    """Within the block no weight of the model requires a gradient, so that passes keep only what the coefficients need.

    Several threads may be within it at once; the last to leave restores the weights.
    """
    key = id(model.model)
    with _FREEZING:
        count, trained = _FROZEN.get(key, (0, []))
        if count == 0:
            trained = [weight for weight in model.model.parameters() if weight.requires_grad]
            for weight in trained:
                weight.requires_grad_(False)
        _FROZEN[key] = (count + 1, trained)
    try:
        yield
    finally:
        with _FREEZING:
            count, trained = _FROZEN.pop(key)
            if count > 1:
                _FROZEN[key] = (count - 1, trained)
            else:
                for weight in trained:
                    weight.requires_grad_(True)
