"""The unembedding, from the last state to the vocabulary: one matrix, or the bands of an adaptive softmax."""

from abc import ABC, abstractmethod
from bisect import bisect_right

import torch
from torch import Tensor, nn

from ffscope.axes import Float, Int
from ffscope.models.adaptive_softmax import AdaptiveSoftmax, product
from ffscope.models.parts import projection
from ffscope.models.ranking import top


class Unembedding(ABC):
    """A model's head, applied to states and to directions."""

    width: int
    vocab: int
    dtype: torch.dtype
    device: torch.device
    columns: int  # of what `multiply` writes
    linear: bool  # whether the logits of a sum are the sum of its terms' logits

    @abstractmethod
    def logits(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The logits as the model computes them."""

    @abstractmethod
    def direction_logits(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The logits of directions: what they promote. In at least float32: half precision has fewer numbers than a vocabulary
        has tokens, so most would tie."""

    @abstractmethod
    def raw_logits(self, vectors: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The paper's h·E, in at least float32."""

    @abstractmethod
    def multiply(self, directions: Float[Tensor, "n width"], out: Float[Tensor, "n columns"]) -> None:
        """Write the products of directions with E, in the precision of `out`: the first columns are `raw_logits`."""

    @abstractmethod
    def promoted(self, products: Float[Tensor, "n columns"]) -> Float[Tensor, "n vocab"]:
        """`direction_logits` from what `multiply` wrote, in the same memory."""

    @abstractmethod
    def scores(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The part of `logits` that is linear in the state."""

    @abstractmethod
    def direction_scores(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """What a direction adds to `scores`, in at least float32."""

    @abstractmethod
    def rows(self, tokens: Int[Tensor, "n"]) -> Float[Tensor, "n width"]:
        """The rows of E for some tokens, in float32."""

    def band(self, token: int) -> int:
        """The band of a token; each band has its own normaliser."""
        return 0

    def top(self, states: Float[Tensor, "n width"]) -> Int[Tensor, "n"]:
        """The token with the highest logit."""
        return top(self.logits(states))

    def top_promoted(self, directions: Float[Tensor, "n width"]) -> Int[Tensor, "n"]:
        """The token that each direction promotes most."""
        return top(self.direction_logits(directions))


class MatrixUnembedding(Unembedding):
    """One matrix for all tokens, with or without a bias."""

    linear = True

    def __init__(self, head: nn.Module) -> None:
        self.head, self.matrix = head, projection(head)
        self.width, self.vocab = self.matrix.shape
        self.columns = self.vocab
        self.dtype, self.device = self.matrix.dtype, self.matrix.device

    def logits(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.head(states)

    def direction_logits(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        directions = _at_least_float32(directions, self.dtype).to(self.device)
        return directions @ self.matrix.to(directions.dtype)

    def raw_logits(self, vectors: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.direction_logits(vectors)

    @torch.no_grad()
    def multiply(self, directions: Float[Tensor, "n width"], out: Float[Tensor, "n columns"]) -> None:
        torch.mm(directions.to(out), self.matrix.to(out.dtype), out=out)

    def promoted(self, products: Float[Tensor, "n columns"]) -> Float[Tensor, "n vocab"]:
        return products

    def scores(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.head(states)

    def direction_scores(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.direction_logits(directions)

    def rows(self, tokens: Int[Tensor, "n"]) -> Float[Tensor, "n width"]:
        return self.matrix.T[tokens.to(self.device)].float()


class AdaptiveUnembedding(Unembedding):
    """An adaptive softmax. Its logits are log-probabilities; they are not linear, since each tail has its own normaliser."""

    linear = False

    def __init__(self, head: AdaptiveSoftmax) -> None:
        self.head = head
        self.width, self.vocab = head.width, head.vocab
        self.columns = head.vocab + len(head.tail)
        words = head.words()
        self.dtype, self.device = words.dtype, words.device

    def logits(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.head(states)

    @torch.no_grad()
    def direction_logits(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self.head(_at_least_float32(directions, self.dtype))

    @torch.no_grad()
    def raw_logits(self, vectors: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self._products(vectors, classes=False)

    @torch.no_grad()
    def multiply(self, directions: Float[Tensor, "n width"], out: Float[Tensor, "n columns"]) -> None:
        self.head.multiply(directions.to(out), out)

    @torch.no_grad()
    def promoted(self, products: Float[Tensor, "n columns"]) -> Float[Tensor, "n vocab"]:
        return self.head.normalise(products)

    @torch.no_grad()
    def scores(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The scores before normalisation. The head's normaliser is the same for all words; each tail adds its own."""
        return self._products(states, classes=True)

    def direction_scores(self, directions: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        return self._products(directions, classes=True)

    @torch.no_grad()
    def rows(self, tokens: Int[Tensor, "n"]) -> Float[Tensor, "n width"]:
        tokens = tokens.to(self.device)
        rows = self.head.words()[tokens.clamp_max(self.head.cutoffs[0] - 1)].float()
        for i, (narrowing, tail_rows) in enumerate(self.head.tails()):
            start, end = self.head.cutoffs[i], self.head.cutoffs[i + 1]
            inside = (tokens >= start) & (tokens < end)
            rows[inside] = tail_rows[tokens[inside] - start].float() @ narrowing.float()
        return rows

    def band(self, token: int) -> int:
        return bisect_right(self.head.cutoffs, token)

    @torch.no_grad()
    def top(self, states: Float[Tensor, "n width"]) -> Int[Tensor, "n"]:
        return self.head.top(states)[:, 0]

    @torch.no_grad()
    def top_promoted(self, directions: Float[Tensor, "n width"]) -> Int[Tensor, "n"]:
        return self.head.top(_at_least_float32(directions, self.dtype))[:, 0]

    def _products(self, vectors: Tensor, *, classes: bool) -> Tensor:
        """h·E, with the rows of each tail multiplied by its projection; with `classes`, plus the score of the word's class."""
        vectors = _at_least_float32(vectors, self.dtype)
        products, class_scores = [product(vectors, self.head.words())], product(vectors, self.head.classes())
        for i, (narrowing, rows) in enumerate(self.head.tails()):
            in_tail = product(product(vectors, narrowing), rows)
            products.append(in_tail + class_scores[..., i, None] if classes else in_tail)
        return torch.cat(products, -1)


def _at_least_float32(vectors: Tensor, dtype: torch.dtype) -> Tensor:
    return vectors.to(torch.promote_types(dtype, torch.float32))


def make_unembedding(head: nn.Module) -> Unembedding:
    """The unembedding of a model's head."""
    return AdaptiveUnembedding(head) if isinstance(head, AdaptiveSoftmax) else MatrixUnembedding(head)
