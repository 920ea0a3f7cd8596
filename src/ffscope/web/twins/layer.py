"""The page of one layer."""

from dataclasses import dataclass
from typing import Any

from ffscope.queries.layer import layer_page
from ffscope.queries.tables import Tables
from ffscope.report.histograms import layer_histograms
from ffscope.web.twins.missing import Missing, missing


@dataclass(frozen=True)
class Drawing:
    """A figure as a vega-lite specification, and what it shows."""

    name: str
    title: str
    sentence: str
    spec: dict[str, Any]
    number: int | None = None  # of the paper's figure that it answers


@dataclass(frozen=True)
class LayerTwin:
    """The searched memories of a layer, column by column, and how their measures are distributed."""

    layer: int
    layers: int
    memories: int
    columns: dict[str, list[Any]]
    figures: list[Drawing]
    missing: list[Missing]


def layer_twin(tables: Tables, layer: int) -> LayerTwin:
    """What a study knows of a layer's memories."""
    page = layer_page(tables, layer)
    drawn = [Drawing(name, title, "", spec) for name, title, spec in layer_histograms(page)]
    absent = missing(tables.study, "values", "agreement", "patterns")
    return LayerTwin(page.layer, page.layers, page.memories, page.columns, drawn, absent)
