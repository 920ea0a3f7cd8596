"""The `raw` lens: the product with the unembedding's rows, nothing else."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ffscope.axes import Float
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.lenses.base import Lens
from ffscope.models.linear_parts import steps
from ffscope.models.parts import projection
from ffscope.models.unembedding import Unembedding


class RawLens(Lens):
    """The paper's h·E, of states and updates alike."""

    name = "raw"

    def __init__(self, unembedding: Unembedding, layers: Sequence[FeedForward], widths: list[nn.Module]) -> None:
        super().__init__(unembedding, layers)
        self.widths = [projection(module) for module in widths]  # from the residual's width to the embedding's

    @classmethod
    def of(cls, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward]) -> "RawLens":
        if unembedding.width == model.config.get_text_config().hidden_size:
            return cls(unembedding, layers, [])
        return cls(unembedding, layers, [step for step in steps(model, top) if isinstance(step, nn.Linear)])

    def states(self, states: Float[Tensor, "*at hidden"], layer: int) -> Float[Tensor, "*at vocab"]:
        return self.updates(states)

    def updates(self, updates: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        return self.unembedding.plain(self._directed(updates))

    def _directed(self, updates: Tensor) -> Tensor:
        for width in self.widths:
            updates = updates.to(width.dtype) @ width
        return updates


LENS = RawLens
