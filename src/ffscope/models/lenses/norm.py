"""The `norm` lens: through the final norm, as the model reads its own last output."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward, number
from ffscope.models.lenses.base import Lens
from ffscope.models.linear_parts import Map, linear_part, steps
from ffscope.models.unembedding import Unembedding


class NormLens(Lens):
    """States exactly as the model reads its last output; updates through the linear part of the same map."""

    name = "norm"

    def __init__(self, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward] = ()) -> None:
        super().__init__(unembedding, layers)
        self.steps = steps(model, top)
        self.scale = number(top.scale, model.config)
        self.cap: float | None = getattr(model.config, top.cap) if top.cap else None
        self.bias: Tensor | None = getattr(model, top.bias, None) if top.bias else None
        self.hidden: int = model.config.get_text_config().hidden_size
        self._linear: list[Map] | None = None

    @classmethod
    def of(cls, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward]) -> "NormLens":
        return cls(model, top, unembedding, layers)

    @property
    def linear(self) -> bool:
        return self.unembedding.linear

    def states(self, states: Float[Tensor, "*at hidden"], layer: int) -> Float[Tensor, "*at vocab"]:
        return self.logits(states)

    @torch.no_grad()
    def logits(self, states: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """What the model predicts from last outputs."""
        logits = self._moved(self.unembedding.logits(self._at_the_top(states)))
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    def updates(self, updates: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        return self.unembedding.promoted(self._directed(updates)) * self.scale

    @torch.no_grad()
    def state_scores(self, states: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """The logits of states before the cap, or before the normalisers of an adaptive softmax."""
        return self._moved(self.unembedding.scores(self._at_the_top(states)))

    def update_scores(self, updates: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """What updates add to `state_scores`, but for the scale that a norm has there."""
        return self.unembedding.pushed(self._directed(updates)) * self.scale

    @torch.no_grad()
    def state_tops(self, states: Float[Tensor, "n hidden"], layer: int) -> Int[Tensor, "n"]:
        if self.bias is not None or self.cap is not None:  # which may change who is first
            return super().state_tops(states, layer)
        return torch.cat([self.unembedding.top(self._at_the_top(some)) for some in states.split(self.chunk)])

    @torch.no_grad()
    def update_tops(self, updates: Float[Tensor, "n hidden"]) -> Int[Tensor, "n"]:
        return torch.cat([self.unembedding.top_promoted(self._directed(some)) for some in updates.split(self.chunk)])

    def _at_the_top(self, states: Tensor) -> Tensor:
        """States as the unembedding gets them."""
        states = states.to(self.unembedding.dtype)
        for step in self.steps:
            states = step(states)
        return states

    def _directed(self, updates: Tensor) -> Tensor:
        """Updates through the linear part of the same steps."""
        if self._linear is None:
            self._linear = [linear_part(step, self.hidden) for step in self.steps]
        for step in self._linear:
            updates = step(updates)
        return updates

    def _moved(self, logits: Tensor) -> Tensor:
        logits = logits * self.scale
        return logits if self.bias is None else logits + self.bias.reshape(-1)


LENS = NormLens
