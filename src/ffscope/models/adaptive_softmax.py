"""Adaptive embeddings and the adaptive softmax: words sorted by frequency into bands, each larger and narrower than the last.

Band 0 of the softmax is its head: a distribution over the frequent words and one class per tail. The probability of a word in a
tail is that of the tail's class times that of the word within the tail, so an unlikely tail need not be computed.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ffscope.axes import Float, Int
from ffscope.errors import InputError
from ffscope.models.ranking import ranked

_NO_SCORE = float("-inf")


class AdaptiveInput(nn.Module):
    """Embeddings whose width differs from band to band, each projected to the residual's width."""

    def __init__(self, *, cutoffs: list[int], widths: list[int], hidden: int) -> None:
        super().__init__()
        self.cutoffs, self.hidden = cutoffs, hidden  # where each band ends; the last is the vocabulary size
        self.embeddings: Any = nn.ModuleList(
            nn.Sequential(nn.Embedding(end - start, width), nn.Linear(width, hidden, bias=False))
            for start, end, width in zip([0, *cutoffs], cutoffs, widths, strict=False)
        )

    @property
    def num_embeddings(self) -> int:
        return self.cutoffs[-1]

    def forward(self, ids: Int[Tensor, "*at"]) -> Float[Tensor, "*at hidden"]:
        embedded = self.embeddings[0][1].weight.new_empty((*ids.shape, self.hidden))
        for start, end, band in zip([0, *self.cutoffs], self.cutoffs, self.embeddings, strict=False):
            inside = (ids >= start) & (ids < end)
            embedded[inside] = band(ids[inside] - start)
        return embedded

    def band(self, index: int) -> tuple[Float[Tensor, "words narrow"], Float[Tensor, "hidden narrow"]]:
        """A band's embeddings and its projection."""
        embedding, projection = self.embeddings[index]
        return embedding.weight, projection.weight


class AdaptiveSoftmax(nn.Module):
    """Log-probabilities of the whole vocabulary or of a few words, and the most likely words."""

    def __init__(
        self, *, cutoffs: list[int], widths: list[int], tied: AdaptiveInput | None, tied_projections: bool
    ) -> None:
        """With `tied`, the output rows are the input embeddings; with `tied_projections`, the tails share their projections too."""
        super().__init__()
        self.cutoffs, self.width, self.tied_projections = cutoffs, widths[0], tied_projections
        self._tied = (
            [] if tied is None else [tied]
        )  # in a list, so that torch does not register its weights here as well
        tails = len(cutoffs) - 1
        if tied is None:
            self.head: Any = nn.Linear(self.width, cutoffs[0] + tails, bias=False)
        else:
            self.head = nn.Module()
            self.head.class_proj = nn.Linear(self.width, tails, bias=False)
        self.tail: Any = nn.ModuleList(self._make_tail(i, width) for i, width in enumerate(widths[1:]))

    def _make_tail(self, i: int, narrow: int) -> nn.ModuleDict:
        """The untied weights of a tail, under fairseq's numbers: 0 is its projection, 2 its words."""
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
        """The rows for the head's words."""
        return self._tied[0].band(0)[0] if self._tied else self.head.weight[: self.cutoffs[0]]

    def classes(self) -> Float[Tensor, "tails width"]:
        """The rows for the head's classes."""
        return self.head.class_proj.weight if self._tied else self.head.weight[self.cutoffs[0] :]

    def tails(self) -> Iterator[tuple[Float[Tensor, "_narrow width"], Float[Tensor, "_words _narrow"]]]:
        """The projection and the rows of every tail."""
        for i, own in enumerate(self.tail):
            rows, widening = self._tied[0].band(i + 1) if self._tied else (own["2"].weight, own["0"].weight.T)
            yield (own["0"].weight if "0" in own else widening.T), rows

    def forward(self, states: Float[Tensor, "*at width"]) -> Float[Tensor, "*at vocab"]:
        """The log-probability of every word."""
        flat = states.reshape(-1, states.shape[-1])
        words, classes = self._head(flat)
        log_probs = words.new_empty(len(flat), self.vocab)
        log_probs[:, : self.cutoffs[0]] = words
        for i, (projection, rows) in enumerate(self.tails()):
            in_tail = self._tail(flat, projection, rows)
            log_probs[:, self.cutoffs[i] : self.cutoffs[i + 1]] = in_tail + classes[:, i, None]
        return log_probs.reshape(*states.shape[:-1], self.vocab)

    def multiply(self, states: Float[Tensor, "n width"], out: Float[Tensor, "n columns"]) -> None:
        """Write the scores of all words before normalisation, each within its band, and then those of the head's classes."""
        for start, rows in ((0, self.words()), (self.vocab, self.classes())):
            product_into(out[:, start : start + len(rows)], states, rows)
        for start, (projection, rows) in zip(self.cutoffs, self.tails(), strict=False):
            product_into(out[:, start : start + len(rows)], product(states, projection), rows)

    def normalise(self, scores: Float[Tensor, "n columns"]) -> Float[Tensor, "n vocab"]:
        """The log-probabilities of all words from what `multiply` wrote, in the same memory."""
        first = self.cutoffs[0]
        joined = _log_softmax(torch.cat([scores[:, :first], scores[:, self.vocab :]], -1))
        scores[:, :first], classes = joined[:, :first], joined[:, first:]
        for i, (start, end) in enumerate(pairwise(self.cutoffs)):
            torch.add(_log_softmax(scores[:, start:end]), classes[:, i, None], out=scores[:, start:end])
        return scores[:, : self.vocab]

    def log_probs_of(self, states: Float[Tensor, "n width"], tokens: Int[Tensor, "n some"]) -> Float[Tensor, "n some"]:
        """The log-probabilities of some words in every row; only the tails that contain one are computed."""
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.vocab:
            raise InputError(
                f"Expected tokens from 0 to {self.vocab - 1}; found {int(tokens.min())} to {int(tokens.max())}."
            )
        words, classes = self._head(states)
        log_probs = words.gather(1, tokens.clamp_max(self.cutoffs[0] - 1))
        for i, (projection, rows) in enumerate(self.tails()):
            start, end = self.cutoffs[i], self.cutoffs[i + 1]
            inside = (tokens >= start) & (tokens < end)
            needed = inside.any(-1).nonzero()[:, 0]
            if len(needed):
                in_tail = self._tail(states[needed], projection, rows) + classes[needed, i, None]
                own = in_tail.gather(1, (tokens[needed] - start).clamp(0, end - start - 1))
                log_probs[needed] = torch.where(inside[needed], own, log_probs[needed])
        return log_probs

    def top(self, states: Float[Tensor, "n width"], count: int = 1) -> Int[Tensor, "n top"]:
        """The most likely words of every row, in the order of `ranked`.

        No word is more likely than its class, so a tail is computed only for the rows where its class is at least as likely as
        the least likely word so far.
        """
        if count < 1:
            raise InputError(f"Expected a count of at least 1 word, found {count}.")
        words, classes = self._head(states)
        scores, tokens = _top_scores(words, count)
        for i, (projection, rows) in enumerate(self.tails()):
            needed = (classes[:, i] >= scores[:, -1]).nonzero()[:, 0]
            if len(needed):
                in_tail = self._tail(states[needed], projection, rows) + classes[needed, i, None]
                tail_scores, tail_tokens = _top_scores(in_tail, count)
                joined = torch.cat([scores[needed], tail_scores], 1)
                order = ranked(joined, count)  # earlier bands have lower ids and come first, so ties are broken by id
                scores[needed] = joined.gather(1, order)
                tokens[needed] = torch.cat([tokens[needed], tail_tokens + self.cutoffs[i]], 1).gather(1, order)
        return tokens[:, : self.vocab]

    def _head(self, states: Float[Tensor, "n width"]) -> tuple[Float[Tensor, "n words"], Float[Tensor, "n tails"]]:
        """The log-probabilities of the head's words and classes, which form one distribution."""
        both = torch.cat([product(states, self.words()), product(states, self.classes())], -1)
        words, classes = _log_softmax(both).split([self.cutoffs[0], len(self.tail)], -1)
        return words, classes

    def _tail(
        self,
        states: Float[Tensor, "n width"],
        projection: Float[Tensor, "narrow width"],
        rows: Float[Tensor, "words narrow"],
    ) -> Float[Tensor, "n words"]:
        """The log-probabilities of a tail's words within the tail."""
        return _log_softmax(product(product(states, projection), rows))


def product(states: Float[Tensor, "*at width"], rows: Float[Tensor, "words width"]) -> Float[Tensor, "*at words"]:
    """The dot products of states with rows, in the states' precision: for more than the model's, pass states that have more."""
    return nn.functional.linear(states, rows.to(states.dtype))


def product_into(
    out: Float[Tensor, "n words"], states: Float[Tensor, "n width"], rows: Float[Tensor, "words width"]
) -> None:
    """Write the same into existing memory: new memory for many logits takes a quarter of the time of computing them."""
    torch.mm(states, rows.to(states.dtype).T, out=out)


def _log_softmax(logits: Float[Tensor, "n words"]) -> Float[Tensor, "n words"]:
    """In at least float32: half precision would make thousands of words equally likely."""
    return logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))


def _top_scores(log_probs: Float[Tensor, "n words"], count: int) -> tuple[Float[Tensor, "n top"], Int[Tensor, "n top"]]:
    """The highest scores and their indices, padded with -inf if there are fewer than `count`."""
    tokens = ranked(log_probs, count)
    scores = log_probs.gather(1, tokens)
    short = count - tokens.shape[1]
    if short <= 0:
        return scores, tokens
    return nn.functional.pad(scores, (0, short), value=_NO_SCORE), nn.functional.pad(tokens, (0, short))
