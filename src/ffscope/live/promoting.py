"""The memories of all layers whose values promote a token most."""

from collections.abc import Sequence

import torch

from ffscope.live.cancellation import Stop, heed
from ffscope.live.requests import finite
from ffscope.live.responses import Promoter, Promoters
from ffscope.live.token_lookup import choose
from ffscope.memory_name import Memory
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import probabilities_of, rank_of, ranked


@torch.no_grad()
def rank_promoters(
    model: MemoryModel, asked: str, *, lens: str, layers: Sequence[int], count: int, stop: Stop
) -> Promoters:
    """The memories that raise a token's logit most above the mean of all tokens, with its rank and probability in each value.

    A logit needs one product with each value. Rank and probability need the whole distribution, so only those of the memories
    in the answer are read.
    """
    reading = model.lens(lens)
    vocab = reading.unembedding.vocab
    token = choose(model, asked, vocab=vocab)
    logits: dict[Memory, float] = {}
    for layer in layers:
        heed(stop)
        logits |= _highest(reading, layer, token.id, count)
    best = sorted(logits, key=lambda memory: (-logits[memory], memory))[:count]
    places: dict[Memory, tuple[int, float]] = {}
    for layer in sorted({memory.layer for memory in best}):
        heed(stop)
        places |= _places(reading, [memory for memory in best if memory.layer == layer], token.id)
    rows = [Promoter(str(memory), logits[memory], *places[memory]) for memory in best]
    return Promoters(token, sum(model.memories[layer] for layer in layers), vocab, rows)


def _highest(lens: Lens, layer: int, token: int, count: int) -> dict[Memory, float]:
    """The memories of a layer that raise the token's logit most."""
    logits = finite(lens.token_logits(layer, token), f"the values of layer {layer}")
    highest = ranked(logits[None], count)[0]
    return {Memory(layer, int(number)): float(logits[number]) for number in highest}


def _places(lens: Lens, memories: list[Memory], token: int) -> dict[Memory, tuple[int, float]]:
    """The token's rank and probability in the values of memories of one layer."""
    ranks: list[int] = []
    probabilities: list[float] = []
    for logits in lens.value_chunks(memories[0].layer, torch.tensor([memory.memory for memory in memories])):
        tokens = torch.full((len(logits),), token, device=logits.device)
        ranks += rank_of(tokens, logits).tolist()
        probabilities += probabilities_of(tokens[:, None], logits)[:, 0].tolist()
    return dict(zip(memories, zip(ranks, probabilities, strict=True), strict=True))
