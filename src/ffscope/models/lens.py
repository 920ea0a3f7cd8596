"""How a vector is read over the vocabulary: the `norm` and the `raw` lens."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ffscope.axes import Float, Int
from ffscope.errors import LayoutError, LensError
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward, number
from ffscope.models.hooks import copied, find
from ffscope.models.parts import activation, projection
from ffscope.models.ranking import top as highest
from ffscope.models.unembedding import Unembedding, unembedding

LENSES = ("norm", "raw")
_LOGITS, _LOGITS_ELSEWHERE = 2**24, 2**27  # bytes read at once: what a CPU's caches like, and what fills a GPU
_ROWS = 2**13  # of E that are held in float32 at once

Map = Callable[[Tensor], Tensor]


class Lens(ABC):
    """Logits over the vocabulary of states (r, o) and of updates (y, v)."""

    name: str
    scale: float = 1.0  # of the logits

    def __init__(self, unembedding: Unembedding, layers: Sequence[FeedForward]) -> None:
        self.unembedding = unembedding
        self.layers = layers

    def __repr__(self) -> str:
        return f"{type(self).__name__}(hidden {self.unembedding.width} → vocabulary {self.unembedding.vocab})"

    @abstractmethod
    def states(self, states: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """What r or o predicts."""

    @abstractmethod
    def updates(self, updates: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        """What y, or a value as it is written to the residual, promotes."""

    @property
    def linear(self) -> bool:
        """Whether an update's reading is the sum of its terms' readings, so that its opposite promotes what it suppresses."""
        return True

    def state_tops(self, states: Float[Tensor, "n hidden"]) -> Int[Tensor, "n"]:
        """The token that each state predicts."""
        return torch.cat([highest(self.states(some)) for some in states.split(self.chunk)])

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


class RawLens(Lens):
    """The paper's h·E, of states and updates alike."""

    name = "raw"

    def __init__(self, unembedding: Unembedding, layers: Sequence[FeedForward], widths: list[nn.Module]) -> None:
        super().__init__(unembedding, layers)
        self.widths = [projection(module) for module in widths]  # from the residual's width to the embedding's

    def states(self, states: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        return self.unembedding.plain(self._directed(states))

    def updates(self, updates: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
        return self.states(updates)

    def _directed(self, updates: Tensor) -> Tensor:
        for width in self.widths:
            updates = updates.to(width.dtype) @ width
        return updates


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

    @property
    def linear(self) -> bool:
        return self.unembedding.linear

    @torch.no_grad()
    def states(self, states: Float[Tensor, "*at hidden"]) -> Float[Tensor, "*at vocab"]:
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
    def state_tops(self, states: Float[Tensor, "n hidden"]) -> Int[Tensor, "n"]:
        if self.bias is not None or self.cap is not None:  # which may change who is first
            return super().state_tops(states)
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


def make_lens(name: str, model: Any, top: Top | None, layers: Sequence[FeedForward]) -> Lens:
    """The lens of that name for a transformers model."""
    if name not in LENSES:
        raise LensError(f"There is no lens {name!r}. Choose one of: {', '.join(LENSES)}.")
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if top is None or head is None:
        raise LensError(
            f"{type(model).__name__} has no unembedding, so its vectors cannot be read over a vocabulary. "
            "Load the model with its language-modelling head."
        )
    reading = unembedding(head)
    if name == "norm":
        return NormLens(model, top, reading, layers)
    if reading.width == model.config.get_text_config().hidden_size:
        return RawLens(reading, layers, [])
    return RawLens(reading, layers, [step for step in steps(model, top) if isinstance(step, nn.Linear)])


def steps(model: Any, top: Top) -> list[Map]:
    """The modules a state passes on its way to the unembedding; those a model does without are None in it."""
    found = []
    for path in top.steps:
        step = activation(model, path) if path.startswith("fn:") else _at_top(model, path)
        if step is not None:
            found.append(step)
    return found


def written(layer: FeedForward, values: Float[Tensor, "memory hidden"]) -> Float[Tensor, "memory hidden"]:
    """Values as they reach the residual: through the linear part of the post-norm, and scaled as the block scales y."""
    return (values if layer.post is None else linear_part(layer.post, values.shape[-1])(values)) * layer.scale


def linear_part(step: Map, width: int) -> Map:
    """What a step does to a direction: a projection's matrix, a norm's centring and gain; an activation is left out."""
    if isinstance(step, nn.Linear):
        matrix = projection(step)
        return lambda vector: vector.to(matrix.dtype) @ matrix
    return _norm_part(step, width) if isinstance(step, nn.Module) else _unchanged


@torch.no_grad()
def _norm_part(norm: nn.Module, width: int) -> Map:
    """Centring and gain, found by trying the norm: families store the gain as w or 1 + w, or not at all."""
    exact = copied(norm).float()
    weight = next(iter(exact.parameters()), torch.zeros(width))
    # Large, so that epsilon vanishes beside it; no element near the mean, so that the gain can be divided out.
    sizes = 1 + torch.rand(weight.shape[-1], generator=torch.Generator().manual_seed(0)).to(weight.device) / 2
    probe = 1e4 * sizes
    probe[::2] *= -1
    seen = exact(probe)
    nudged = probe.clone()
    nudged[0] *= 3
    if torch.equal(exact(nudged)[1:], seen[1:]):  # each element by itself: a gain or an activation
        return _gain_part(exact, probe)
    centred = torch.allclose(seen, exact(probe + 2e4), rtol=1e-3, atol=1e-3)
    direction = probe - probe.mean() if centred else probe
    gain = (seen - exact(torch.zeros_like(probe))) * direction.square().mean().sqrt() / direction

    def apply(vector: Tensor) -> Tensor:
        vector = vector.float()
        return (vector - vector.mean(-1, keepdim=True) if centred else vector) * gain

    return apply


def _gain_part(step: nn.Module, probe: Tensor) -> Map:
    """A gain (a layer scale, say) is linear; an activation is taken for no change."""
    gain = step(probe) / probe
    if torch.allclose(step(2 * probe), 2 * gain * probe) and torch.allclose(step(-probe), -gain * probe):
        return lambda vector: vector.float() * gain
    return _unchanged


def _unchanged(vector: Tensor) -> Tensor:
    return vector


def _at_top(model: Any, path: str) -> Any:
    """Most of the top is in the base model, a masked language model's head beside it."""
    for root in (model.base_model, model):
        try:
            return find(root, path)
        except AttributeError:
            continue
    raise LayoutError(f"Expected {path!r} at the top of {type(model).__name__}, and it is not there.")
