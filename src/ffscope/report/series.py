"""Series for figures: a study's tables, and measures by layer with their intervals."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ffscope.axes import Array
from ffscope.queries.tables import Tables
from ffscope.report import bootstrap

Columns = dict[str, Array]
Measure = dict[str, float | None]
Series = dict[str, list[float | None]]

_QUANTILES = {"q05": 0.05, "q25": 0.25, "q75": 0.75, "q95": 0.95}


class Source:
    """A study's tables, and a random generator for one entry of the summary, seeded by its name."""

    def __init__(self, tables: Tables, name: str) -> None:
        self.tables, self.study = tables, tables.study
        self.generator = np.random.default_rng([self.study.settings["seed"], *name.encode()])

    @property
    def model(self) -> dict[str, Any]:
        """The model as the manifest describes it: layers, memories of each, vocab …"""
        return self.study.manifest["model"]

    def share(self, hits: Array) -> Measure:
        """The share of true rows, with its interval; None if there are no rows."""
        if not len(hits):
            return {"value": None, "low": None, "high": None}
        low, high = bootstrap.share(int(np.sum(hits)), len(hits), self.generator)
        return {"value": float(np.mean(hits)), "low": low, "high": high}

    def statistic(self, rows: Array, function: Callable[[Array], float]) -> Measure:
        """A statistic of rows with its interval; None where it is not defined."""
        value = function(rows) if len(rows) else np.nan
        if np.isnan(value):
            return {"value": None, "low": None, "high": None}
        low, high = bootstrap.statistic(rows, function, self.generator)
        return {"value": float(value), "low": low, "high": high}

    def spread(self, values: Array) -> Measure:
        """A median with its interval, and the quantiles around it."""
        values = values[~np.isnan(values.astype(np.float64))]
        low, high = bootstrap.median(values, self.generator)
        quantiles = {name: float(np.quantile(values, at)) for name, at in _QUANTILES.items()}
        return {"value": float(np.median(values)), "low": low, "high": high, **quantiles}


def by_layer(columns: Columns, column: str, measure: Callable[[Array], Measure]) -> tuple[list[int], Series]:
    """The layers in the columns, and a measure of one column in each."""
    layers = np.unique(columns["layer"])
    measures = [measure(columns[column][columns["layer"] == layer]) for layer in layers]
    return layers.tolist(), {name: [each[name] for each in measures] for name in measures[0]}
