"""The estimated effects of all memories as columns of effects.parquet."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor

from ffscope.axes import Array
from ffscope.effects.baseline import Baselines
from ffscope.effects.estimate import Estimator
from ffscope.effects.sums import State, Sums, listed
from ffscope.effects.texts import Batch, differentiable
from ffscope.models.info import ModelInfo
from ffscope.models.memory_model import MemoryModel

_NORMAL = 1.959964  # quantile of the normal distribution for a 95 % interval
_MEANS = {"loss_gradient": "gradient", "contribution": "contribution", "fires_here": "fires"}
_DIRECT = {"direct": "direct", "direct_size": "direct_size", "norm_size": "scale_size", "direct_logit": "logit"}


@dataclass(frozen=True)
class Estimate:
    """f(model, batches) returns the state of the sums over their examples."""

    baselines: Baselines
    bos: int | None
    steps: int

    def __call__(self, model: MemoryModel, batches: list[Batch]) -> State:
        """The sums of every quantity of all memories."""
        sums = Sums(model.memories, model.device)
        estimator = Estimator(model, self.baselines, bos=self.bos, steps=self.steps)
        for batch in differentiable(model, batches):
            sums.begin(batch.places(model).rows.new_tensor(batch.examples))
            estimator.run(batch, sums.add)
            sums.end()
        return sums.state()


def effect_columns(state: State, model: ModelInfo) -> dict[str, Any]:
    """The columns of effects.parquet."""
    count, memories = int(state["count"]), model.memories
    low, high = mean_interval(state["effect"], state["effect_square"], count)
    columns: dict[str, Any] = {
        "layer": np.repeat(np.arange(len(memories)), memories),
        "memory": np.concatenate([np.arange(number) for number in memories]),
        "effect": _mean(state["effect"], count),
        "effect_low": low,
        "effect_high": high,
        "effect_size": _mean(state["effect_size"], count),
        "effect_on_prediction": _mean(state["prediction"], count),
        **{name: _mean(state[quantity], count) for name, quantity in _MEANS.items()},
    }
    nulls = pa.nulls(sum(memories), pa.float32())
    columns |= {name: _mean(state[key], count) if key in state else nulls for name, key in _DIRECT.items()}
    for side in ("helped", "hurt"):
        columns[f"{side}_examples"], columns[f"{side}_changes"] = listed(state[side])
    return columns


def _mean(sums: Tensor, count: int) -> Array:
    return (sums / count).float().numpy()


def mean_interval(sums: Tensor, squares: Tensor, count: int) -> tuple[Array, Array]:
    """The ends of the 95 % interval of a mean over `count` examples, by the normal distribution."""
    mean = sums / count
    variance = (squares / count - mean.square()).clamp_min(0) * count / max(count - 1, 1)
    width = _NORMAL * (variance / count).sqrt()
    return (mean - width).float().numpy(), (mean + width).float().numpy()
