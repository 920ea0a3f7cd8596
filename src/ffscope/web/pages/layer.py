"""The layer page: all memories of one layer."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ffscope.queries.layer import layer_page, searched_layer
from ffscope.queries.measures import RANGE_KINDS
from ffscope.queries.tables import Tables
from ffscope.report.histograms import layer_histograms
from ffscope.stages.registry import measures, stages
from ffscope.web.dependencies import Layer, html_page, response_docs, served_study
from ffscope.web.drawing import Drawing
from ffscope.web.missing_stages import MissingStage, missing_stages
from ffscope.web.panels import FilledPanel, layer_panels
from ffscope.web.parameters import takes
from ffscope.web.responses import Json

router = APIRouter()


@dataclass(frozen=True)
class LayerResponse:
    """The measures of a layer's searched memories, column by column, and histograms of them."""

    layer: int
    layers: int
    memories: int
    columns: dict[str, list[Any]]
    figures: list[Drawing]
    missing: list[MissingStage]
    panels: list[FilledPanel]


def layer_response(tables: Tables, layer: int) -> LayerResponse:
    """The JSON of a layer page."""
    page = layer_page(tables, layer)
    return LayerResponse(
        layer=page.layer,
        layers=page.layers,
        memories=page.memories,
        columns=page.columns,
        figures=[Drawing(name, title, "", spec) for name, title, spec in layer_histograms(page)],
        missing=missing_stages(tables.study, _stages()),
        panels=layer_panels(tables, layer),
    )


def _stages() -> Iterator[str]:
    """The stages with measures, which are the columns of the table."""
    return (name for name, stage in stages().items() if stage.measures)


@router.get("/L{layer:number}.json", responses=response_docs(LayerResponse), tags=["study"])
def layer(request: Request, layer: Layer) -> Json:
    """The memories of a layer, column by column."""
    return Json(served_study(request).cached(f"L{layer}", lambda tables: layer_response(tables, layer)))


def _filters() -> Iterator[str]:
    """The URL parameters of the filters: both ends of a range, or the choice."""
    for name, (_, measure) in measures().items():
        if measure.filtered:
            yield from (f"{name}_min", f"{name}_max") if measure.kind in RANGE_KINDS else (name,)


@router.get("/L{layer:number}", include_in_schema=False)
@takes(own=("sort", "q", "state", *_filters()))
def html(request: Request, layer: int) -> Response:
    """The layer page."""
    searched_layer(served_study(request).tables, layer)
    return html_page(request, "layer")
