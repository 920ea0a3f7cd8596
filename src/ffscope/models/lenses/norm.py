"""The `norm` lens: through the final norm, as the model itself reads its last output."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward, resolve_scale
from ffscope.models.lenses.base import Lens, State
from ffscope.models.linear_parts import Map, linear_part, unembedding_steps
from ffscope.models.placement import stored
from ffscope.models.unembedding import Unembedding


class NormLens(Lens):
    """Reads states exactly as the model reads its last output, and updates through the linear part of the same map."""

    name = "norm"

    def __init__(self, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward] = ()) -> None:
        super().__init__(unembedding, layers)
        self.steps = unembedding_steps(model, top)
        self.scale = resolve_scale(top.scale, model.config)
        self.cap: float | None = getattr(model.config, top.cap) if top.cap else None
        self.bias: Tensor | None = stored(model, top.bias) if top.bias and hasattr(model, top.bias) else None
        self.normalised = not unembedding.linear and self.scale == 1
        self.hidden: int = model.config.get_text_config().hidden_size
        self._linear: list[Map] | None = None

    @classmethod
    def for_model(
        cls, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward], study: Path | None
    ) -> "NormLens":
        return cls(model, top, unembedding, layers)

    @property
    def linear(self) -> bool:
        return self.unembedding.linear

    def states(
        self, states: Float[Tensor, "*at hidden"], layer: int, of: State = "residual"
    ) -> Float[Tensor, "*at vocab"]:
        return self.logits(states)

    @torch.no_grad()
    def logits(self, states: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """The logits that the model would compute if these states were its last output."""
        return self.head_logits(self.head_input(states))

    def head_input(self, states: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at width"]:
        """States as they enter the unembedding; can be differentiated."""
        states = states.to(self.unembedding.dtype)
        for step in self.steps:
            states = step(states)
        return states

    def head_logits(self, inputs: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The logits of what enters the unembedding; can be differentiated."""
        logits = self._scale_and_shift(self.unembedding.logits(inputs))
        return logits if self.cap is None else torch.tanh(logits / self.cap) * self.cap

    def head_direction(self, updates: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at width"]:
        """What updates add to `head_input`, up to the factor that the norm applies in a run."""
        return self._direction(updates)

    def updates(self, updates: Float[Tensor, "*at hidden"], layer: int | None = None) -> Float[Tensor, "*at vocab"]:
        return self.unembedding.direction_logits(self._direction(updates, layer)) * self.scale

    @torch.no_grad()
    def state_scores(self, states: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """The logits of states before the cap, or before an adaptive softmax's normalisers."""
        return self._scale_and_shift(self.unembedding.scores(self.head_input(states)))

    def update_scores(self, updates: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """What updates add to `state_scores`, up to the factor that the norm applies in a run."""
        return self.unembedding.direction_scores(self._direction(updates)) * self.scale

    @torch.no_grad()
    def state_tops(self, states: Float[Tensor, "n hidden"], layer: int, of: State = "residual") -> Int[Tensor, "n"]:
        if self.bias is not None or self.cap is not None:  # these may change which token is first
            return super().state_tops(states, layer, of)
        tops = [self.unembedding.top(self.head_input(chunk)) for chunk in states.split(self.chunk)]
        return torch.cat(tops).to(states.device)

    @torch.no_grad()
    def update_tops(self, updates: Float[Tensor, "n hidden"], layer: int | None = None) -> Int[Tensor, "n"]:
        tops = [self.unembedding.top_promoted(self._direction(chunk, layer)) for chunk in updates.split(self.chunk)]
        return torch.cat(tops).to(updates.device)

    def _direction(self, updates: Tensor, layer: int | None = None) -> Tensor:
        """Updates through the linear part of the same steps."""
        if self._linear is None:
            self._linear = [linear_part(step, self.hidden) for step in self.steps]
        for step in self._linear:
            updates = step(updates)
        return updates

    def _scale_and_shift(self, logits: Tensor) -> Tensor:
        logits = logits * self.scale
        return logits if self.bias is None else logits + self.bias.reshape(-1).to(logits.device)


LENS = NormLens
