"""Tokens ranked by their logits; ties go to the lower id, so that every machine gives the same ranking."""

import torch
from torch import Tensor

from ffscope.axes import Float, Int


def ranked(logits: Float[Tensor, "rows vocab"], count: int) -> Int[Tensor, "rows top"]:
    """The `count` highest-ranked tokens of every row."""
    vocab = logits.shape[-1]
    highest = logits.topk(min(count + 1, vocab), dim=-1)  # one extra, to detect a tie at the end
    tied = (highest.values[:, 1:] == highest.values[:, :-1]).any(-1).nonzero()[:, 0]
    if len(tied):  # `topk` orders ties arbitrarily; a stable sort is slow, but such rows are rare
        sorted_again = logits[tied].sort(dim=-1, descending=True, stable=True).indices
        highest.indices[tied] = sorted_again[:, : highest.indices.shape[1]]
    return highest.indices[:, :count]


def rank_of(tokens: Int[Tensor, "rows"], logits: Float[Tensor, "rows vocab"]) -> Int[Tensor, "rows"]:
    """The rank of one token in every row, from 1. Takes logits, since a softmax rounds close ones to the same probability."""
    own = logits.gather(1, tokens[:, None])
    rank = 1 + _count(logits > own)
    tied = (_count(logits == own) > 1).nonzero()[:, 0]
    for row in tied.tolist():
        rank[row] += (logits[row, : int(tokens[row])] == own[row]).sum()
    return rank


def _count(mask: Tensor) -> Int[Tensor, "rows"]:
    """The number of true elements in every row; summing booleans directly takes several times longer."""
    return mask.view(torch.int8).sum(-1, dtype=torch.int32)


def top(logits: Float[Tensor, "*at vocab"]) -> Int[Tensor, "*at"]:
    """The highest-ranked token."""
    return logits.argmax(-1)  # the first of tied ones


def probabilities_of(
    tokens: Int[Tensor, "rows some"], logits: Float[Tensor, "rows vocab"]
) -> Float[Tensor, "rows some"]:
    """The softmax probabilities of some tokens in every row."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return exact.log_softmax(-1).gather(1, tokens).exp()  # `logsumexp` is slow when many terms underflow
