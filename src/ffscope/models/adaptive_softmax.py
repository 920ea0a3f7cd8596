"""Adaptive embeddings and the adaptive softmax: frequent words first, in bands that grow longer and narrower.

Band 0 of the softmax is its head: a distribution over the frequent words and one class for each tail. A word of tail i has the
probability of its class times its own in the tail, so a tail that is unlikely need not be looked at.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ffscope.axes import Float, Int
from ffscope.errors import InputError
from ffscope.models.ranking import ranked

_NEVER = float("-inf")


class AdaptiveInput(nn.Module):
    """Embeddings of the bands' own widths, each projected to the residual's."""

    def __init__(self, *, cutoffs: list[int], widths: list[int], hidden: int) -> None:
        super().__init__()
        self.cutoffs, self.hidden = cutoffs, hidden  # where each band ends; the last is the vocabulary's size
        self.embeddings: Any = nn.ModuleList(
            nn.Sequential(nn.Embedding(end - start, width), nn.Linear(width, hidden, bias=False))
            for start, end, width in zip([0, *cutoffs], cutoffs, widths, strict=False)
        )

    @property
    def num_embeddings(self) -> int:
        return self.cutoffs[-1]

    def forward(self, ids: Int[Tensor, "*at"]) -> Float[Tensor, "*at hidden"]:
        found = self.embeddings[0][1].weight.new_empty((*ids.shape, self.hidden))
        for start, end, band in zip([0, *self.cutoffs], self.cutoffs, self.embeddings, strict=False):
            here = (ids >= start) & (ids < end)
            found[here] = band(ids[here] - start)
        return found

    def band(self, index: int) -> tuple[Float[Tensor, "words narrow"], Float[Tensor, "hidden narrow"]]:
        """A band's embeddings and its projection."""
        embedding, projection = self.embeddings[index]
        return embedding.weight, projection.weight


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities over the whole vocabulary, of a few words, or of the likeliest."""

    def __init__(
        self, *, cutoffs: list[int], widths: list[int], tied: AdaptiveInput | None, tied_projections: bool
    ) -> None:
        """With `tied`, words are read with the embeddings they are written with; with the same projections, if those are tied."""
        super().__init__()
        self.cutoffs, self.width, self.tied_projections = cutoffs, widths[0], tied_projections
        self._tied = [] if tied is None else [tied]  # in a list, so that its weights are not this module's too
        tails = len(cutoffs) - 1
        if tied is None:
            self.head: Any = nn.Linear(self.width, cutoffs[0] + tails, bias=False)
        else:
            self.head = nn.Module()
            self.head.class_proj = nn.Linear(self.width, tails, bias=False)
        self.tail: Any = nn.ModuleList(self._make_tail(i, width) for i, width in enumerate(widths[1:]))

    def _make_tail(self, i: int, narrow: int) -> nn.ModuleDict:
        """What a tail has of its own, under fairseq's numbers: 0 its projection, 2 its words."""
        own = nn.ModuleDict()
        if not (self._tied and self.tied_projections):
            own["0"] = nn.Linear(self.width, narrow, bias=False)
        if not self._tied:
            own["2"] = nn.Linear(narrow, self.cutoffs[i + 1] - self.cutoffs[i], bias=False)
        return own

    @property
    def vocab(self) -> int:
        return self.cutoffs[-1]

    def words(self) -> Float[Tensor, "words width"]:
        """The rows of the head's words."""
        return self._tied[0].band(0)[0] if self._tied else self.head.weight[: self.cutoffs[0]]

    def classes(self) -> Float[Tensor, "tails width"]:
        """The rows of the head's classes."""
        return self.head.class_proj.weight if self._tied else self.head.weight[self.cutoffs[0] :]

    def tails(self) -> Iterator[tuple[Float[Tensor, "_narrow width"], Float[Tensor, "_words _narrow"]]]:
        """Every tail's projection and rows."""
        for i, own in enumerate(self.tail):
            rows, widening = self._tied[0].band(i + 1) if self._tied else (own["2"].weight, own["0"].weight.T)
            yield (own["0"].weight if "0" in own else widening.T), rows

    def forward(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The log-probability of every word."""
        flat = states.reshape(-1, states.shape[-1])
        words, classes = self._head(flat)
        found = words.new_empty(len(flat), self.vocab)
        found[:, : self.cutoffs[0]] = words
        for i, (projection, rows) in enumerate(self.tails()):
            read = self._tail(flat, projection, rows)
            found[:, self.cutoffs[i] : self.cutoffs[i + 1]] = read + classes[:, i, None]
        return found.reshape(*states.shape[:-1], self.vocab)

    def log_probs_of(self, states: Float[Tensor, "n width"], tokens: Int[Tensor, "n some"]) -> Float[Tensor, "n some"]:
        """The log-probabilities of some words of every row; only the tails that hold one are read."""
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.vocab:
            raise InputError(
                f"Expected tokens from 0 to {self.vocab - 1}; found {int(tokens.min())} to {int(tokens.max())}."
            )
        words, classes = self._head(states)
        found = words.gather(1, tokens.clamp_max(self.cutoffs[0] - 1))
        for i, (projection, rows) in enumerate(self.tails()):
            start, end = self.cutoffs[i], self.cutoffs[i + 1]
            inside = (tokens >= start) & (tokens < end)
            asking = inside.any(-1).nonzero()[:, 0]
            if len(asking):
                read = self._tail(states[asking], projection, rows) + classes[asking, i, None]
                own = read.gather(1, (tokens[asking] - start).clamp(0, end - start - 1))
                found[asking] = torch.where(inside[asking], own, found[asking])
        return found

    def top(self, states: Float[Tensor, "n width"], count: int = 1) -> Int[Tensor, "n top"]:
        """The likeliest words of every row, as `ranked` has them. No word is likelier than its class, so a tail is read only
        for the rows whose class is at least as likely as what was found before."""
        if count < 1:
            raise InputError(f"Expected to be asked for 1 word at least, found {count}.")
        words, classes = self._head(states)
        scores, tokens = _best(words, count)
        for i, (projection, rows) in enumerate(self.tails()):
            asking = (classes[:, i] >= scores[:, -1]).nonzero()[:, 0]
            if len(asking):
                read = self._tail(states[asking], projection, rows) + classes[asking, i, None]
                more, others = _best(read, count)
                joined = torch.cat([scores[asking], more], 1)
                order = ranked(joined, count)  # ids of earlier bands are lower, and stand first
                scores[asking] = joined.gather(1, order)
                tokens[asking] = torch.cat([tokens[asking], others + self.cutoffs[i]], 1).gather(1, order)
        return tokens[:, : self.vocab]

    def _head(self, states: Float[Tensor, "n width"]) -> tuple[Float[Tensor, "n words"], Float[Tensor, "n tails"]]:
        """The log-probabilities of the head's words and classes, which are one distribution."""
        both = torch.cat([product(states, self.words()), product(states, self.classes())], -1)
        words, classes = _log_softmax(both).split([self.cutoffs[0], len(self.tail)], -1)
        return words, classes

    def _tail(
        self,
        states: Float[Tensor, "n width"],
        projection: Float[Tensor, "narrow width"],
        rows: Float[Tensor, "words narrow"],
    ) -> Float[Tensor, "n words"]:
        """The log-probabilities of a tail's words, given their class."""
        return _log_softmax(product(product(states, projection), rows))


def product(states: Float[Tensor, "*at width"], rows: Float[Tensor, "words width"]) -> Float[Tensor, "*at words"]:
    """States with rows, in the states' precision: who wants it finer than the model gives finer states."""
    return nn.functional.linear(states, rows.to(states.dtype))


def _log_softmax(logits: Float[Tensor, "n words"]) -> Float[Tensor, "n words"]:
    """In float32 at least: half precision would make thousands of words equally likely."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def _best(read: Float[Tensor, "n words"], count: int) -> tuple[Float[Tensor, "n top"], Int[Tensor, "n top"]]:
    """The highest scores and where they are; -inf stands where there are not so many."""
    tokens = ranked(read, count)
    scores = read.gather(1, tokens)
    short = count - tokens.shape[1]
    if short <= 0:
        return scores, tokens
    return nn.functional.pad(scores, (0, short), value=_NEVER), nn.functional.pad(tokens, (0, short))
