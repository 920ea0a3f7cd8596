"""From the last state's width to the vocabulary: one matrix, or the bands of an adaptive softmax."""

from abc import ABC, abstractmethod
from bisect import bisect_right

import torch
from torch import Tensor, nn

from ffscope.axes import Float, Int
from ffscope.models.adaptive_softmax import AdaptiveSoftmax, product
from ffscope.models.parts import projection
from ffscope.models.ranking import top


class Unembedding(ABC):
    """What a model's head makes of a state, and what it would make of a direction."""

    width: int
    vocab: int
    dtype: torch.dtype
    device: torch.device
    linear: bool  # whether logits are a sum of what the terms of a state give

    @abstractmethod
    def logits(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """As the model makes them."""

    @abstractmethod
    def promoted(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """What a direction promotes, in float32 at least: half precision has fewer numbers than a vocabulary tokens, so most
        would rank alike."""

    @abstractmethod
    def plain(self, vectors: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The paper's h·E, in float32 at least."""

    @abstractmethod
    def scores(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The part of `logits` that is a sum of what the terms of a state give."""

    @abstractmethod
    def pushed(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """What a direction adds to `scores`, in float32 at least."""

    @abstractmethod
    def rows(self, tokens: Int[Tensor, "n"]) -> Float[Tensor, "n width"]:
        """The rows of E of some tokens, in float32."""

    def band(self, token: int) -> int:
        """Which normaliser a token has."""
        return 0

    def top(self, states: Float[Tensor, "n width"]) -> Int[Tensor, "n"]:
        """The highest of `logits`."""
        return top(self.logits(states))

    def top_promoted(self, directions: Float[Tensor, "n width"]) -> Int[Tensor, "n"]:
        """The token that each direction promotes most."""
        return top(self.promoted(directions))


class Matrix(Unembedding):
    """One matrix for all tokens, and perhaps a bias."""

    linear = True

    def __init__(self, head: nn.Module) -> None:
        self.head, self.matrix = head, projection(head)
        self.width, self.vocab = self.matrix.shape
        self.dtype, self.device = self.matrix.dtype, self.matrix.device

    def logits(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.head(states)

    def promoted(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        directions = _finely(directions, self.dtype)
        return directions @ self.matrix.to(directions.dtype)

    def plain(self, vectors: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.promoted(vectors)

    def scores(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.head(states)

    def pushed(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.promoted(directions)

    def rows(self, tokens: Int[Tensor, "n"]) -> Float[Tensor, "n width"]:
        return self.matrix.T[tokens.to(self.device)].float()


class Bands(Unembedding):
    """An adaptive softmax. Its logits are log-probabilities: each tail has a normaliser of its own, so they are no sum."""

    linear = False

    def __init__(self, head: AdaptiveSoftmax) -> None:
        self.head = head
        self.width, self.vocab = head.width, head.vocab
        words = head.words()
        self.dtype, self.device = words.dtype, words.device

    @torch.no_grad()
    def logits(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.head(states)

    @torch.no_grad()
    def promoted(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.head(_finely(directions, self.dtype))

    @torch.no_grad()
    def plain(self, vectors: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self._read(vectors, classes=False)

    @torch.no_grad()
    def scores(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """Before the normalisers: that of the head is the same for all words, and each tail has one more."""
        return self._read(states, classes=True)

    def pushed(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self._read(directions, classes=True)

    @torch.no_grad()
    def rows(self, tokens: Int[Tensor, "n"]) -> Float[Tensor, "n width"]:
        tokens = tokens.to(self.device)
        found = self.head.words()[tokens.clamp_max(self.head.cutoffs[0] - 1)].float()
        for i, (narrowing, rows) in enumerate(self.head.tails()):
            start, end = self.head.cutoffs[i], self.head.cutoffs[i + 1]
            inside = (tokens >= start) & (tokens < end)
            found[inside] = rows[tokens[inside] - start].float() @ narrowing.float()
        return found

    def band(self, token: int) -> int:
        return bisect_right(self.head.cutoffs, token)

    @torch.no_grad()
    def top(self, states: Float[Tensor, "n width"]) -> Int[Tensor, "n"]:
        return self.head.top(states)[:, 0]

    @torch.no_grad()
    def top_promoted(self, directions: Float[Tensor, "n width"]) -> Int[Tensor, "n"]:
        return self.head.top(_finely(directions, self.dtype))[:, 0]

    def _read(self, vectors: Tensor, *, classes: bool) -> Tensor:
        """h·E, where a tail's words have the rows that its projection makes of them; with what their class adds."""
        vectors = _finely(vectors, self.dtype)
        found, added = [product(vectors, self.head.words())], product(vectors, self.head.classes())
        for i, (narrowing, rows) in enumerate(self.head.tails()):
            read = product(product(vectors, narrowing), rows)
            found.append(read + added[..., i, None] if classes else read)
        return torch.cat(found, -1)


def _finely(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    return vectors.to(torch.promote_types(dtype, torch.float32))


def unembedding(head: nn.Module) -> Unembedding:
    """A model's head."""
    return Bands(head) if isinstance(head, AdaptiveSoftmax) else Matrix(head)
