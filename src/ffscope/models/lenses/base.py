"""The base class of lenses: logits over the vocabulary for states and updates, and from them what values promote."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.here import lens_here
from ffscope.models.linear_parts import to_residual
from ffscope.models.ranking import top as highest
from ffscope.models.unembedding import Unembedding

_LOGITS, _LOGITS_ELSEWHERE = (
    2**24,
    2**27,
)  # bytes of logits at once: few enough for a CPU's caches, enough to fill a GPU
_MULTIPLIED = 128  # values multiplied with E at once on a CPU; more are no faster
_ALIGNED = 32  # rows of products start at multiples of it; otherwise a CPU multiplies at two thirds of its speed
_ROWS = 2**13  # of E converted to float32 at once

State = Literal["residual", "output"]
"""Which state of a layer: the residual before its update is added, or the output after."""


class Lens(ABC):
    """Logits over the vocabulary for states (r, o) and updates (y, v)."""

    name: str
    study: Path | None = None  # the study that it was learned in
    scale: float = 1.0  # of the logits
    normalised = False  # whether the logits of updates are log-probabilities

    def __init__(self, unembedding: Unembedding, layers: Sequence[FeedForward]) -> None:
        self.unembedding = unembedding
        self.layers = layers

    def __reduce__(self) -> Any:
        """Pickled by reference: on another machine, it is the lens of the model that is loaded there."""
        return lens_here, (self.name, self.study)

    @classmethod
    @abstractmethod
    def for_model(
        cls, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward], study: Path | None
    ) -> "Lens":
        """The lens for a transformers model; `top` gives its steps from the last output to the logits."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden {self.unembedding.width} → vocabulary {self.unembedding.vocab})"

    @abstractmethod
    def states(
        self, states: Float[Tensor, "*at hidden"], layer: int, of: State = "residual"
    ) -> Float[Tensor, "*at vocab"]:
        """The logits of r or o of a feed-forward layer; o of the last layer is the model's last output."""

    @abstractmethod
    def updates(self, updates: Float[Tensor, "*at hidden"], layer: int | None = None) -> Float[Tensor, "*at vocab"]:
        """The logits of y, or of a value as it is added to the residual of a layer, by default the last: what it promotes."""

    @property
    def linear(self) -> bool:
        """Whether the logits of an update are the sum of its terms' logits, so that its negative promotes what it suppresses."""
        return True

    def state_tops(self, states: Float[Tensor, "n hidden"], layer: int, of: State = "residual") -> Int[Tensor, "n"]:
        """The token that each state of a layer predicts."""
        tops = [highest(self.states(chunk, layer, of)) for chunk in states.split(self.chunk)]
        return torch.cat(tops).to(states.device)

    def update_tops(self, updates: Float[Tensor, "n hidden"], layer: int | None = None) -> Int[Tensor, "n"]:
        """The token that each update of a layer promotes most."""
        tops = [highest(self.updates(chunk, layer)) for chunk in updates.split(self.chunk)]
        return torch.cat(tops).to(updates.device)

    def values(self, layer: int, chosen: Any = slice(None)) -> Float[Tensor, "memory vocab"]:
        """The logits of a layer's values: all of them, or those selected by a list of indices or a slice."""
        return self.updates(self.value_updates(layer, chosen), layer)

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
        return self._direction(self.value_updates(layer), layer).to(column) @ column * self.scale

    @cached_property
    def _mean_row(self) -> Float[Tensor, "width"]:
        """The mean of E's rows, computed in chunks."""
        tokens = torch.arange(self.unembedding.vocab)
        sums = [self.unembedding.rows(chunk).sum(0) for chunk in tokens.split(_ROWS)]
        return torch.stack(sums).sum(0) / len(tokens)

    @abstractmethod
    def _direction(self, updates: Tensor, layer: int | None = None) -> Tensor:
        """Updates of a layer as they enter the unembedding."""

    @property
    def chunk(self) -> int:
        """How many vectors are read at once."""
        limit = _LOGITS if self.unembedding.device.type == "cpu" else _LOGITS_ELSEWHERE
        return max(1, limit // (4 * self.unembedding.vocab))

    def _value_rows(self) -> tuple[int, int]:
        """How many values are multiplied with E at once, and how many of these are then read at once.

        On a CPU these differ: a product is fast with many values, and reading it is fast while the logits are in the caches.
        """
        if self.unembedding.device.type != "cpu":
            return self.chunk, self.chunk
        read = 1 << max(1, self.chunk // 2).bit_length() - 1  # a power of two, so that all chunks are whole
        return max(read, _MULTIPLIED), read

    @torch.no_grad()
    def value_chunks(
        self, layer: int, memories: Int[Tensor, "some"] | None = None
    ) -> Iterator[Float[Tensor, "_some vocab"]]:
        """The logits of a layer's values, all or some, in chunks: together they would not fit in memory.

        The next chunk may overwrite this one.
        """
        ff, unembedding = self.layers[layer], self.unembedding
        values = ff.values()
        selected = torch.arange(len(values)) if memories is None else memories
        at_once, chunk = self._value_rows()
        dtype = torch.promote_types(unembedding.dtype, torch.float32)
        width = -(-unembedding.columns // _ALIGNED) * _ALIGNED
        products = torch.empty(min(at_once, len(selected)), width, dtype=dtype, device=unembedding.device)
        products = products[:, : unembedding.columns]
        for part in selected.to(values.device).split(at_once):
            directions = self._direction(to_residual(ff, values[part]), layer)
            unembedding.multiply(directions, products[: len(part)])
            for rows in products[: len(part)].split(chunk):
                yield self._logits_of_products(rows)

    def _logits_of_products(self, products: Float[Tensor, "n columns"]) -> Float[Tensor, "n vocab"]:
        """The logits of updates from their products with E, in the same memory."""
        logits = self.unembedding.promoted(products)
        return logits if self.scale == 1 else logits.mul_(self.scale)
