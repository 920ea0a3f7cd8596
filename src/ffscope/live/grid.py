"""What every layer predicts at every position."""

import math

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.live.cancellation import Stop, heed
from ffscope.live.requests import finite
from ffscope.live.responses import Grid
from ffscope.models.lenses.base import Lens
from ffscope.models.ranking import rank_of, ranked

_TOP = 10  # tokens of a cell


def read_grid(
    lens: Lens,
    states: dict[int, Float[Tensor, "pos hidden"]],
    *,
    predictions: Int[Tensor, "pos"],
    stop: Stop,
) -> Grid:
    """Each layer's states, one for each position, as the lens reads them."""
    grid = Grid(list(states), [], [], [], [])
    for layer, here in states.items():
        tokens, probabilities, ranks, entropies = _row(lens, here, layer, predictions, stop)
        grid.top.append(tokens.tolist())
        grid.probability.append(finite(probabilities, f"the prediction of layer {layer}").tolist())
        grid.rank.append(ranks.tolist())
        grid.entropy.append(finite(entropies, f"the prediction of layer {layer}").tolist())
    return grid


@torch.no_grad()
def _row(
    lens: Lens, states: Float[Tensor, "pos hidden"], layer: int, predictions: Int[Tensor, "pos"], stop: Stop
) -> tuple[Tensor, ...]:
    """One layer's cells, read `chunk` after `chunk`: together their logits would not fit in memory."""
    cells = []
    for some, wanted in zip(states.split(lens.chunk), predictions.split(lens.chunk), strict=True):
        heed(stop)
        logits = lens.states(some, layer)
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
        tokens = ranked(logits, _TOP)
        # A probability of 0 adds nothing, though its logarithm is infinite.
        entropies = torch.special.entr(exact.exp()).sum(-1) / math.log(2)
        cells.append((tokens, exact.gather(1, tokens).exp(), rank_of(wanted, logits), entropies))
    return tuple(map(torch.cat, zip(*cells, strict=True)))
