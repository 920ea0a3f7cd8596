"""What every lens does: logits over the vocabulary of states and of updates, and from these what values promote."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.linear_parts import written
from ffscope.models.ranking import top as highest
from ffscope.models.unembedding import Unembedding

_LOGITS, _LOGITS_ELSEWHERE = 2**24, 2**27  # bytes read at once: what a CPU's caches like, and what fills a GPU
_ROWS = 2**13  # of E that are held in float32 at once


class Lens(ABC):
    """Logits over the vocabulary of states (r, o) and of updates (y, v)."""

    name: str
    scale: float = 1.0  # of the logits

    def __init__(self, unembedding: Unembedding, layers: Sequence[FeedForward]) -> None:
        self.unembedding = unembedding
        self.layers = layers

    @classmethod
    @abstractmethod
    def of(cls, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward]) -> "Lens":
        """The lens for a transformers model, whose top is `top`."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden {self.unembedding.width} → vocabulary {self.unembedding.vocab})"

    @abstractmethod
    def states(self, states: Float[Tensor, "*at hidden"], layer: int) -> Float[Tensor, "*at vocab"]:
        """What r or o of a feed-forward layer predicts; the model's last output is that of the last layer."""

    @abstractmethod
    def updates(self, updates: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """What y, or a value as it is written to the residual, promotes."""

    @property
    def linear(self) -> bool:
        """Whether an update's reading is the sum of its terms' readings, so that its opposite promotes what it suppresses."""
        return True

    def state_tops(self, states: Float[Tensor, "n hidden"], layer: int) -> Int[Tensor, "n"]:
        """The token that each state of a layer predicts."""
        return torch.cat([highest(self.states(some, layer)) for some in states.split(self.chunk)])

    def update_tops(self, updates: Float[Tensor, "n hidden"]) -> Int[Tensor, "n"]:
        """The token that each update promotes most."""
        return torch.cat([highest(self.updates(some)) for some in updates.split(self.chunk)])

    def values(self, layer: int, chosen: Any = slice(None)) -> Float[Tensor, "memory vocab"]:
        """What a layer's values promote: all of them, or those that a list of indices or a slice chooses."""
        return self.updates(self.value_updates(layer, chosen))

    def value_updates(self, layer: int, chosen: Any = slice(None)) -> Float[Tensor, "memory hidden"]:
        """A layer's values as they reach the residual."""
        return written(self.layers[layer], self.layers[layer].values()[chosen])

    @torch.no_grad()
    def token_logits(self, layer: int, token: int) -> Float[Tensor, "memory"]:
        """By how much a layer's values raise one token's logit above the mean of all tokens, which a softmax leaves out.

        Where the lens is linear this takes one product with each value, and not one for every token.
        """
        if not self.linear:
            return torch.cat([logits[:, token] - logits.mean(-1) for logits in self.value_chunks(layer)])
        column = self.unembedding.rows(torch.tensor([token]))[0] - self._mean_row
        return self._directed(self.value_updates(layer)).to(column.dtype) @ column * self.scale

    @cached_property
    def _mean_row(self) -> Float[Tensor, "width"]:
        """The mean of E's rows, made of some at a time."""
        everyone = torch.arange(self.unembedding.vocab)
        sums = [self.unembedding.rows(some).sum(0) for some in everyone.split(_ROWS)]
        return torch.stack(sums).sum(0) / len(everyone)

    @abstractmethod
    def _directed(self, updates: Tensor) -> Tensor:
        """Updates as the unembedding gets them."""

    @property
    def chunk(self) -> int:
        """How many vectors are read at once where there are many."""
        room = _LOGITS if self.unembedding.device.type == "cpu" else _LOGITS_ELSEWHERE
        return max(1, room // (4 * self.unembedding.vocab))

    @torch.no_grad()
    def value_chunks(
        self, layer: int, memories: Int[Tensor, "some"] | None = None
    ) -> Iterator[Float[Tensor, "_some vocab"]]:
        """What a layer's values promote, all or some of them, `chunk` after `chunk`: together they would not fit in memory."""
        ff = self.layers[layer]
        values = ff.values()
        everyone = torch.arange(len(values)) if memories is None else memories
        for chunk in everyone.to(values.device).split(self.chunk):
            yield self.updates(written(ff, values[chunk]))
