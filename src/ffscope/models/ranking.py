"""Tokens ranked by their logits; ties go to the lower id, so that every machine gives the same ranking."""

from collections.abc import Callable

import torch
from torch import Tensor

from ffscope.axes import Float, Int

_EXACT = 2**24  # the largest whole number up to which float32 has all
_FEW = 2**12  # tokens, of which the highest are found directly


def ranked(logits: Float[Tensor, "rows vocab"], count: int, *, lowest: bool = False) -> Int[Tensor, "rows top"]:
    """The `count` highest-ranked tokens of every row; with `lowest`, those with the lowest logits, lowest first.

    A large vocabulary is read once, for the highest logit of each group of neighbours. The highest tokens are in the `count`
    highest groups: any token of another group ranks below the first token of each of these.
    """
    vocab = logits.shape[-1]
    size = 1 << (vocab // max(count, 1)).bit_length() // 2  # about as many groups as tokens in the chosen ones
    if vocab < _FEW or vocab // size <= count:
        return _ranked_directly(-logits if lowest else logits, count)
    whole = vocab // size * size
    in_groups = logits[:, :whole].unflatten(1, (-1, size))
    best = -in_groups.amin(-1) if lowest else in_groups.amax(-1)
    groups = (
        _ranked_directly(best, count).sort(-1).values
    )  # in the order of the vocabulary, so that ties are broken by id
    rest = torch.arange(whole, vocab, device=logits.device).expand(len(logits), -1)  # too few for a group
    tokens = torch.cat([(groups[..., None] * size + torch.arange(size, device=logits.device)).flatten(1), rest], 1)
    candidates = logits.gather(1, tokens)
    return tokens.gather(1, _ranked_directly(-candidates if lowest else candidates, count))


def _ranked_directly(logits: Float[Tensor, "rows vocab"], count: int) -> Int[Tensor, "rows top"]:
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
    rank = 1 + _count(torch.gt, logits, own)
    tied = (_count(torch.eq, logits, own) > 1).nonzero()[:, 0]
    for row in tied.tolist():
        rank[row] += (logits[row, : int(tokens[row])] == own[row]).sum()
    return rank


def _count(compare: Callable[..., Tensor], logits: Tensor, own: Tensor) -> Int[Tensor, "rows"]:
    """In how many places of every row the comparison is true."""
    if logits.device.type == "cpu" and logits.dtype == torch.float32 and logits.shape[-1] <= _EXACT:
        # Much faster than booleans, and exact: whole numbers up to 2^24 are.
        return compare(logits, own, out=torch.empty_like(logits)).sum(-1).int()
    return compare(logits, own).view(torch.int8).sum(-1, dtype=torch.int32)  # faster than summing booleans


def top(logits: Float[Tensor, "*at vocab"]) -> Int[Tensor, "*at"]:
    """The highest-ranked token."""
    return logits.argmax(-1)  # the first of tied ones


def probabilities_of(
    tokens: Int[Tensor, "rows some"], logits: Float[Tensor, "rows vocab"]
) -> Float[Tensor, "rows some"]:
    """The softmax probabilities of some tokens in every row."""
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return exact.log_softmax(-1).gather(1, tokens).exp()  # `logsumexp` is slow when many terms underflow
