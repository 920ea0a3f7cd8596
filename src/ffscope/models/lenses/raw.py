"""The `raw` lens: the dot products with the rows of the unembedding, and nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ffscope.axes import Float
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.lenses.base import Lens, State
from ffscope.models.linear_parts import unembedding_steps
from ffscope.models.parts import projection
from ffscope.models.unembedding import Unembedding


class RawLens(Lens):
    """The paper's h·E, for both states and updates."""

    name = "raw"

    def __init__(self, unembedding: Unembedding, layers: Sequence[FeedForward], modules: list[nn.Module]) -> None:
        super().__init__(unembedding, layers)
        self.matrices = [projection(module) for module in modules]  # from the residual's width to the embedding's

    @classmethod
    def for_model(
        cls, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward], study: Path | None
    ) -> "RawLens":
        if unembedding.width == model.config.get_text_config().hidden_size:
            return cls(unembedding, layers, [])
        return cls(unembedding, layers, [step for step in unembedding_steps(model, top) if isinstance(step, nn.Linear)])

    def states(
        self, states: Float[Tensor, "*at hidden"], layer: int, of: State = "residual"
    ) -> Float[Tensor, "*at vocab"]:
        return self.updates(states)

    def updates(self, updates: Float[Tensor, "*at hidden"], layer: int | None = None) -> Float[Tensor, "*at vocab"]:
        return self.unembedding.raw_logits(self._direction(updates))

    def _logits_of_products(self, products: Float[Tensor, "n columns"]) -> Float[Tensor, "n vocab"]:
        return products[:, : self.unembedding.vocab]

    def _direction(self, updates: Tensor, layer: int | None = None) -> Tensor:
        for matrix in self.matrices:
            updates = updates.to(matrix) @ matrix
        return updates


LENS = RawLens
