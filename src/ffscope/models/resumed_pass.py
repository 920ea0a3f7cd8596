"""Passes that start in the middle of a model, from the outputs that the blocks below had in an earlier pass."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from ffscope.axes import Int
from ffscope.models.hooks import attach, detach
from ffscope.models.memory_model import MemoryModel


class BlockOutputs:
    """What every block of a model returned in one pass."""

    def __init__(self, model: MemoryModel, batch: int) -> None:
        self.model, self.batch = model, batch
        self._outputs: dict[int, Any] = {}

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the pass that is made within the block, in this thread."""
        owner = threading.get_ident()

        def keeper(layer: int) -> Callable[..., None]:
            def keep(_module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
                if threading.get_ident() == owner:
                    self._outputs[layer] = _copied(output)

            return keep

        handles = [attach(self.model.layer(layer).block, "out", keeper(layer)) for layer in range(self.model.layers)]
        try:
            yield
        finally:
            for handle in handles:
                detach(handle)

    @contextmanager
    def resumed(self, layer: int, rows: Int[Tensor, "n"]) -> Iterator[None]:
        """Within the block, passes over some rows of the batch (repeated ones too) skip every block below a layer.

        The skipped blocks return the output of the highest of them, in each stack of an encoder–decoder.
        """
        with ExitStack() as stack:
            for first, end in self._stacks(layer):
                output = _rows_of(self._outputs[end - 1], rows, self.batch)
                for skipped in range(first, end):
                    stack.enter_context(_replaced(self.model.layer(skipped).block, output))
            yield

    def _stacks(self, layer: int) -> Iterator[tuple[int, int]]:
        """The first layer and the end of every run of layers below `layer` that are in one stack of blocks."""
        starts = [below for below in range(layer) if self.model.layer(below).parts[0].depth == 0]
        return zip(starts, [*starts[1:], layer], strict=False)  # none below the first layer


@contextmanager
def _replaced(block: nn.Module, output: Any) -> Iterator[None]:
    """Let a block return an output without computing it, in this thread."""
    owner, forward = threading.get_ident(), block.forward
    own = "forward" in vars(block)  # accelerate also replaces the forward of a module

    def skip(*args: Any, **kwargs: Any) -> Any:
        return output if threading.get_ident() == owner else forward(*args, **kwargs)

    block.forward = skip
    try:
        yield
    finally:
        if own:
            block.forward = forward
        else:
            del block.forward


def _copied(output: Any) -> Any:
    """A copy without its graph, since a model may change a tensor in place after the block returned it."""
    return _mapped(output, lambda tensor: tensor.detach().clone())


def _rows_of(output: Any, rows: Tensor, batch: int) -> Any:
    """The rows of every tensor in an output that has one row per text."""
    return _mapped(output, lambda tensor: tensor[rows.to(tensor.device)] if len(tensor) == batch else tensor)


def _mapped(output: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(output, Tensor):
        return function(output) if output.dim() else output
    if isinstance(output, tuple | list):
        return type(output)(_mapped(element, function) for element in output)
    return output
