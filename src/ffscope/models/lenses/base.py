"""The base class of lenses: logits over the vocabulary for states and updates, and from them what values promote."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.linear_parts import to_residual
from ffscope.models.ranking import top as highest
from ffscope.models.unembedding import Unembedding

_LOGITS, _LOGITS_ELSEWHERE = (
    2**24,
    2**27,
)  # bytes of logits at once: few enough for a CPU's caches, enough to fill a GPU
_ROWS = 2**13  # of E converted to float32 at once


class Lens(ABC):
    """Logits over the vocabulary for states (r, o) and updates (y, v)."""

    name: str
    scale: float = 1.0  # of the logits

    def __init__(self, unembedding: Unembedding, layers: Sequence[FeedForward]) -> None:
        self.unembedding = unembedding
        self.layers = layers

    @classmethod
    @abstractmethod
    def for_model(cls, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward]) -> "Lens":
        """The lens for a transformers model; `top` gives its steps from the last output to the logits."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden {self.unembedding.width} → vocabulary {self.unembedding.vocab})"

    @abstractmethod
    def states(self, states: Float[Tensor, "*at hidden"], layer: int) -> Float[Tensor, "*at vocab"]:
        """The logits of r or o of a feed-forward layer; o of the last layer is the model's last output."""

    @abstractmethod
    def updates(self, updates: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """The logits of y, or of a value as it is added to the residual: what it promotes."""

    @property
    def linear(self) -> bool:
        """Whether the logits of an update are the sum of its terms' logits, so that its negative promotes what it suppresses."""
        return True

    def state_tops(self, states: Float[Tensor, "n hidden"], layer: int) -> Int[Tensor, "n"]:
        """The token that each state of a layer predicts."""
        return torch.cat([highest(self.states(chunk, layer)) for chunk in states.split(self.chunk)])

    def update_tops(self, updates: Float[Tensor, "n hidden"]) -> Int[Tensor, "n"]:
        """The token that each update promotes most."""
        return torch.cat([highest(self.updates(chunk)) for chunk in updates.split(self.chunk)])

    def values(self, layer: int, chosen: Any = slice(None)) -> Float[Tensor, "memory vocab"]:
        """The logits of a layer's values: all of them, or those selected by a list of indices or a slice."""
        return self.updates(self.value_updates(layer, chosen))

    def value_updates(self, layer: int, chosen: Any = slice(None)) -> Float[Tensor, "memory hidden"]:
        """A layer's values as they are added to the residual."""
        return to_residual(self.layers[layer], self.layers[layer].values()[chosen])

    @torch.no_grad()
    def token_logits(self, layer: int, token: int) -> Float[Tensor, "memory"]:
        """How far each value of a layer raises one token's logit above the mean over all tokens, which a softmax ignores.

        A linear lens needs only one product per value for this, instead of one per token.
        """
        if not self.linear:
            return torch.cat([logits[:, token] - logits.mean(-1) for logits in self.value_chunks(layer)])
        column = self.unembedding.rows(torch.tensor([token]))[0] - self._mean_row
        return self._direction(self.value_updates(layer)).to(column.dtype) @ column * self.scale

    @cached_property
    def _mean_row(self) -> Float[Tensor, "width"]:
        """The mean of E's rows, computed in chunks."""
        tokens = torch.arange(self.unembedding.vocab)
        sums = [self.unembedding.rows(chunk).sum(0) for chunk in tokens.split(_ROWS)]
        return torch.stack(sums).sum(0) / len(tokens)

    @abstractmethod
    def _direction(self, updates: Tensor) -> Tensor:
        """Updates as they enter the unembedding."""

    @property
    def chunk(self) -> int:
        """How many vectors are read at once."""
        limit = _LOGITS if self.unembedding.device.type == "cpu" else _LOGITS_ELSEWHERE
        return max(1, limit // (4 * self.unembedding.vocab))

    @torch.no_grad()
    def value_chunks(
        self, layer: int, memories: Int[Tensor, "some"] | None = None
    ) -> Iterator[Float[Tensor, "_some vocab"]]:
        """The logits of a layer's values, all or some, in chunks: together they would not fit in memory."""
        ff = self.layers[layer]
        values = ff.values()
        selected = torch.arange(len(values)) if memories is None else memories
        for chunk in selected.to(values.device).split(self.chunk):
            yield self.updates(to_residual(ff, values[chunk]))
