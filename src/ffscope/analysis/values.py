"""Projects every value to the vocabulary: the tokens it promotes and suppresses, with their probabilities."""

from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from ffscope.axes import Int
from ffscope.models.lenses import ChosenLens
from ffscope.models.lenses.base import Lens
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import probabilities_of, rank_of, ranked
from ffscope.search.following import tokens_after_triggers
from ffscope.stages.shards import Shards
from ffscope.stages.stage import Work

TOKENS = 20  # top and bottom tokens kept per value


def shards(work: Work) -> Shards:
    """One shard per layer."""
    lens = work.lens
    memories = work.info.memories
    return Shards(
        count=len(memories),
        # The rank of the next token is computed here because it needs the whole distribution.
        input=lambda layer: (layer, tokens_after_triggers(work.study, layer, memories[layer])),
        rows=partial(value_columns, lens=lens),
        unit="layers",
    )


def value_columns(
    model: MemoryModel, of_layer: tuple[int, Int[Tensor, "memory"]], *, lens: ChosenLens
) -> dict[str, Any]:
    """The rows of one layer, given the token after each memory's top trigger. Without an unembedding there are only norms."""
    layer, next_tokens = of_layer
    values = model.values(layer)
    count = len(values)
    columns: dict[str, Any] = {
        "layer": np.full(count, layer),
        "memory": np.arange(count),
        "norm": values.float().norm(dim=-1).cpu().numpy(),
        **{name: [None] * count for name in ("top_tokens", "top_probs", "max_prob", "bottom_tokens", "next_rank")},
    }
    if model.top is not None:
        model_lens = lens.of(model)
        outside = (next_tokens < 0) | (next_tokens >= model_lens.unembedding.vocab)
        top, probabilities, bottom, ranks = _read_layer(model_lens, layer, next_tokens.masked_fill(outside, 0))
        columns["top_tokens"], columns["bottom_tokens"] = _lists(top), _lists(bottom)
        columns["top_probs"], columns["max_prob"] = _lists(probabilities), probabilities[:, 0].numpy()
        columns["next_rank"] = pa.array(ranks.numpy(), mask=outside.numpy())
    return columns


def _read_layer(lens: Lens, layer: int, next_tokens: Int[Tensor, "memory"]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per value: the top tokens, their probabilities, the bottom tokens, lowest first, and the rank of the next token."""
    count, listed = len(next_tokens), min(TOKENS, lens.unembedding.vocab)
    # Made before the first chunk: results kept between the chunks' large temporaries would scatter these over memory.
    device = lens.unembedding.device
    top, bottom = (torch.empty(count, listed, dtype=torch.int32, device=device) for _ in range(2))
    probabilities = torch.empty(count, listed, device=device)
    ranks = torch.empty(count, dtype=torch.int32, device=device)
    next_tokens, start = next_tokens.to(device), 0
    for logits in lens.value_chunks(layer):
        chunk = slice(start, start + len(logits))
        tokens = ranked(logits, TOKENS)
        top[chunk] = tokens
        probabilities[chunk] = logits.gather(1, tokens).exp() if lens.normalised else probabilities_of(tokens, logits)
        bottom[chunk] = ranked(logits, TOKENS, lowest=True)
        ranks[chunk] = rank_of(next_tokens[chunk], logits)
        start = chunk.stop
    return top.cpu(), probabilities.cpu(), bottom.cpu(), ranks.cpu()


def _lists(rows: Tensor) -> pa.ListArray:
    offsets = range(0, rows.numel() + 1, rows.shape[1])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(rows.flatten().numpy()))
