"""What a coefficient is set to when a memory is taken away."""

from dataclasses import dataclass

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ffscope.axes import Array, Float
from ffscope.errors import GradientError
from ffscope.models.info import ModelInfo
from ffscope.study.folder import Study


@dataclass(frozen=True)
class Baselines:
    """Zero for every memory, or a mean coefficient for each, by layer."""

    means: tuple[Array, ...] | None = None

    @property
    def are_zero(self) -> bool:
        """Whether all are zero."""
        return self.means is None

    def of_layer(self, layer: int, count: int, device: torch.device) -> Float[Tensor, "memory"]:
        """Those of a layer with `count` memories."""
        if self.means is None:
            return torch.zeros(count, device=device)
        return torch.from_numpy(self.means[layer]).to(device)


def read_baselines(study: Study, model: ModelInfo, name: str, *, option: str = "--baseline") -> Baselines:
    """The baselines of a study: `zero`, or `mean`, the mean coefficients over the searched text. `option` chose the name."""
    if name == "zero":
        return Baselines()
    table = pq.read_table(study.path("memories.parquet"), columns=["layer", "memory", "mean"])
    if len(table) < sum(model.memories):
        raise GradientError(
            f"{option} mean needs the mean coefficient of every memory, and this study searched {len(table):,} of "
            f"{sum(model.memories):,}. Use {option} zero, or make a study of all memories."
        )
    layers, memories, means = (table[name].to_numpy() for name in ("layer", "memory", "mean"))
    rows = [np.zeros(count, dtype=np.float32) for count in model.memories]
    for layer, row in enumerate(rows):
        here = layers == layer
        row[memories[here]] = means[here]
    return Baselines(tuple(rows))
