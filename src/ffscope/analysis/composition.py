"""How a layer's update is composed: how many memories are active, and how many by themselves predict what the layer predicts."""

from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.models.info import ModelInfo
from ffscope.models.lenses.base import Lens
from ffscope.options.analysis import ExampleOptions, LensOptions
from ffscope.search.example_pass import Observer, View
from ffscope.stages.stage import Work
from ffscope.study.folder import Study

EFFECTIVE_SHARE = 0.9  # share of Σ |coefficient| × ‖value‖ that the effective memories make up


class Composition(Observer):
    """Computes the rows of composition.parquet."""

    stage = "composition"

    def __init__(self, study: Study, model: ModelInfo, *, lens: str, count: int) -> None:
        study.need("values", {"lens": lens})
        self.settings = {"lens": lens, "examples": count}
        self._values = [_Values(study, layer) for layer in range(model.layers)]

    def rows(self, view: View) -> dict[str, Any]:
        layers = [self._layer(view, layer) for layer in range(len(self._values))]
        return {name: np.concatenate([columns[name] for columns in layers]) for name in layers[0]}

    def _layer(self, view: View, layer: int) -> dict[str, Any]:
        coefficients, values = view.states.coefficients[layer], self._values[layer].on(view.model.device)
        active = (coefficients > 0).sum(-1)
        ff_top = view.ff_top(layer)
        nulls = np.full(len(view.examples), None)
        return {
            "example": view.examples,
            "layer": np.full(len(view.examples), layer),
            "active": active.cpu().numpy(),
            "active_fraction": (active / coefficients.shape[1]).cpu().numpy(),
            "effective": effective(coefficients.float().abs() * values.norm).cpu().numpy(),
            "ff_top": nulls if ff_top is None else ff_top.cpu().numpy(),
            "matches": nulls if ff_top is None else values.matches(coefficients, ff_top, view.lens).cpu().numpy(),
        }


class _Values:
    """The values of a layer from values.parquet: norms, and the top tokens of the values and of their negatives."""

    def __init__(self, study: Study, layer: int) -> None:
        columns = ["norm", "top_tokens", "bottom_tokens"]
        table = pq.read_table(study.path("values.parquet"), columns=columns, filters=[("layer", "==", layer)])
        self.norm = torch.from_numpy(table["norm"].to_numpy().copy())
        self.top, self._bottom = (_firsts(table[name]) for name in columns[1:])
        self._layer = layer
        self._negated_top: Tensor | None = None

    def on(self, device: torch.device) -> "_Values":
        """The same, after its tensors are moved to a device."""
        if self.norm.device != device:
            self.norm, self.top, self._bottom = (tensor.to(device) for tensor in (self.norm, self.top, self._bottom))
        return self

    def negated_top(self, lens: Lens | None) -> Int[Tensor, "memory"]:
        """The top tokens of the negated values: the values' bottom tokens if the lens is linear, else computed."""
        if lens is None or lens.linear:
            return self._bottom
        if self._negated_top is None:
            self._negated_top = lens.update_tops(-lens.value_updates(self._layer), self._layer)
        return self._negated_top

    def matches(
        self, coefficients: Float[Tensor, "n memory"], ff_top: Int[Tensor, "n"], lens: Lens | None
    ) -> Int[Tensor, "n"]:
        """How many memories promote the layer's top token: by their value, or by its negative if the coefficient is negative."""
        promoted, negative = (coefficients > 0) & (self.top == ff_top[:, None]), coefficients < 0
        if not negative.any():
            return promoted.sum(-1)
        return (promoted | (negative & (self.negated_top(lens) == ff_top[:, None]))).sum(-1)


def _firsts(lists: Any) -> Tensor:
    """The first token of every list; -1 if the model has no unembedding."""
    return torch.from_numpy(pc.fill_null(pc.list_element(lists, 0), -1).to_numpy().copy())


def effective(sizes: Float[Tensor, "n memory"]) -> Int[Tensor, "n"]:
    """How many of the largest sizes make up EFFECTIVE_SHARE of their sum; 0 if all are 0."""
    largest = sizes.double().sort(-1, descending=True).values.cumsum(-1)
    total = largest[:, -1:]
    return ((largest < EFFECTIVE_SHARE * total).sum(-1) + 1) * (total[:, 0] > 0)


def observer(work: Work) -> Composition:
    """The observer of the stage."""
    lens, examples = work.options(LensOptions).lens, work.options(ExampleOptions).examples
    return Composition(work.study, work.info, lens=lens, count=examples)
