"""How similar the keys and values of paired memories are, and the ranks of the other model's top tokens."""

from typing import NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Array, Float, Int
from ffscope.models.linear_parts import to_residual
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import rank_of

State = dict[str, Tensor]
_ROWS = 4096  # memories compared at once: a mixture of experts may have 100,000 in a layer


class Pairs(NamedTuple):
    """The memories of one layer of the model after: each one's partner, as layer (-1 for none) and number in it, and the top token
    of the partner's value (-1 for none)."""

    layer: int
    partner_layer: Int[Array, "memory"]
    partner_memory: Int[Array, "memory"]
    top: Int[Array, "memory"]


@torch.no_grad()
def similarities(before: MemoryModel, after: MemoryModel, pairs: Pairs, *, lens: str) -> State:
    """Cosines of gates, keys and values, products and norms of values, and ranks; NaN or 0 for none.

    Values are taken as they are added to the residual.
    """
    memories = torch.arange(len(pairs.top)).split(_ROWS)
    parts = [_similarities(before, after, pairs, rows) for rows in memories]
    state = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return state | {"rank": _ranks(after, pairs, lens)}


def _similarities(before: MemoryModel, after: MemoryModel, pairs: Pairs, rows: Tensor) -> State:
    """Those of some memories of the layer, in float64."""
    keys, values = _keys(after, pairs.layer, rows), _values(after, pairs.layer, rows)
    others, partners = [torch.full_like(key, torch.nan) for key in keys], torch.full_like(values, torch.nan)
    norm_before = torch.zeros_like(values[:, 0])
    layers, memories = (torch.from_numpy(column)[rows] for column in (pairs.partner_layer, pairs.partner_memory))
    for layer in set(layers.tolist()) - {-1}:
        here = (layers == layer).nonzero()[:, 0]
        of_layer = _values(before, layer, memories[here]).to(values.device)
        norm_before[here] = of_layer.norm(dim=-1)
        if before.hidden == after.hidden:
            partners[here] = of_layer
            keys_of_layer = _keys(before, layer, memories[here])
            for other, key in zip(others, keys_of_layer, strict=True) if len(keys_of_layer) == len(others) else ():
                other[here] = key.to(other.device)
    cosines = [_cosine(key, other) for key, other in zip(keys, others, strict=True)]
    state = {
        "key_cosine": cosines[-1],
        "gate_cosine": cosines[0] if len(cosines) == 2 else torch.full_like(cosines[0], torch.nan),
        "value_cosine": _cosine(values, partners),
        "product": (values * partners).sum(-1),
        "norm_before": norm_before,
        "norm_after": values.norm(dim=-1),
    }
    return {name: tensor.cpu() for name, tensor in state.items()}


def _keys(model: MemoryModel, layer: int, rows: Tensor) -> list[Float[Tensor, "_memory _hidden"]]:
    keys = model.keys(layer)
    return [key[rows.to(key.device)].double() for key in (keys if isinstance(keys, tuple) else (keys,))]


def _values(model: MemoryModel, layer: int, rows: Tensor) -> Float[Tensor, "_memory _hidden"]:
    values = model.values(layer)
    return to_residual(model.layer(layer), values[rows.to(values.device)]).double()


def _cosine(rows: Tensor, others: Tensor) -> Float[Tensor, "memory"]:
    """Row by row; NaN where one of the two is zero or missing."""
    norms = rows.norm(dim=-1) * others.norm(dim=-1)
    return torch.where(norms > 0, (rows * others).sum(-1) / norms, torch.nan).clamp(-1, 1)


def _ranks(model: MemoryModel, pairs: Pairs, lens: str) -> Int[Tensor, "memory"]:
    """The rank of each pair's token in the value of the memory, from 1; 0 for none."""
    ranks = torch.zeros(len(pairs.top), dtype=torch.int32)
    if model.top is None:
        return ranks
    tokens, start = torch.from_numpy(pairs.top).long(), 0
    for logits in model.lens(lens).value_chunks(pairs.layer):
        chunk = slice(start, start + len(logits))
        wanted = tokens[chunk].to(logits.device)
        here = rank_of(wanted.clamp(min=0), logits).masked_fill(wanted < 0, 0)
        ranks[chunk] = here.to(ranks)
        start = chunk.stop
    return ranks


@torch.no_grad()
def are_related(before: MemoryModel, after: MemoryModel, least: float) -> tuple[bool, float]:
    """Whether memories of the same number are clearly the same memories: in every layer the mean cosine of their values is at
    least this high. Also returns the lowest mean."""
    means = []
    for layer, count in enumerate(after.memories):
        cosines = [
            _cosine(*(_values(model, layer, rows).to(after.device) for model in (after, before)))
            for rows in torch.arange(count).split(_ROWS)
        ]
        means.append(float(torch.cat(cosines).nan_to_num(0).mean()))
    return min(means) >= least, min(means)
