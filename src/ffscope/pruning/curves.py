"""The loss over held-out text without the first memories of each order: over all layers, and in single layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp
from typing import Any

import torch

from ffscope.effects.estimated import mean_interval
from ffscope.effects.groups import Group
from ffscope.pruning.ranking import Rankings, lowest
from ffscope.stages.prune import RANDOM, PruneOptions

_LARGEST = 700.0  # nats: the exponential of more overflows


@dataclass(frozen=True)
class Point:
    """One point of a curve: the memories that are pruned, and why these."""

    score: str
    seed: int | None
    layer: int | None
    share: float
    group: Group


def measured_points(
    rankings: Rankings, scores: Sequence[str], options: PruneOptions, memories: Sequence[int]
) -> list[Point]:
    """Every point that is measured: all shares over all layers, then one share of each layer alone."""
    return list(_points(rankings, scores, options, memories))


def _points(
    rankings: Rankings, scores: Sequence[str], options: PruneOptions, memories: Sequence[int]
) -> Iterator[Point]:
    for score in scores:
        for seed in range(options.random_seeds) if score == RANDOM else (None,):
            places = rankings.of(score, seed)
            for share in options.share_list:
                yield Point(score, seed, None, share, lowest(places, memories, share))
            if options.layer_share:
                for layer in range(len(memories)):
                    group = lowest(places, memories, options.layer_share, layer=layer)
                    yield Point(score, seed, layer, options.layer_share, group)


def curve_columns(points: Sequence[Point], state: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The columns of pruning.parquet; the first loss of the state is the intact model's."""
    count = int(state["count"])
    losses = (state["loss"] / count).tolist()
    change = state["loss"][1:] - state["loss"][0]
    low, high = mean_interval(change, state["change_square"][1:], count)
    return {
        "score": [point.score for point in points],
        "seed": [point.seed for point in points],
        "layer": [point.layer for point in points],
        "share": [point.share for point in points],
        "memories": [len(point.group) for point in points],
        "loss": losses[1:],
        "change": (change / count).tolist(),
        "change_low": low.tolist(),
        "change_high": high.tolist(),
        "perplexity": [perplexity_of(loss) for loss in losses[1:]],
    }


def perplexity_of(loss: float) -> float:
    """The perplexity of a mean loss; infinite where it overflows."""
    return exp(loss) if loss < _LARGEST else float("inf")
