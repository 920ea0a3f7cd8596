"""The memory page."""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from ffscope.memory_name import Memory
from ffscope.queries.memory import MemoryPage, Value, memory_page, neighbours, random_memory, searched
from ffscope.queries.mutation import Mutation, mutation_of
from ffscope.queries.patterns import AnnotatedPattern
from ffscope.queries.similar import Similar, similar
from ffscope.queries.tables import Tables
from ffscope.stages.registry import stages
from ffscope.web.dependencies import Layer, Number, html_page, response_docs, served_study
from ffscope.web.missing_stages import MissingStage, missing_stages
from ffscope.web.panels import FilledPanel, memory_panels
from ffscope.web.parameters import takes
from ffscope.web.responses import Json
from ffscope.web.rows import Row, merged_rows, prefix_row

router = APIRouter()
_QUANTILES = (0.9, 0.7, 0.5, 0.3, 0.1)


@dataclass(frozen=True)
class MemoryResponse:
    """Everything about one memory. Examples are its triggers, prefixes near quantiles of its coefficients, and a random sample."""

    memory: str
    gist: str
    layer: int
    number: int
    model: str
    dtype: str
    lens: str | None
    seen: int
    fired: int
    mean: float
    maximum: float
    histogram: list[int]
    histogram_edges: list[float]
    value: Value | None
    patterns: list[AnnotatedPattern] | None
    triggers: list[Row]
    quantiles: list[Row]
    sample: list[Row]
    negative: list[Row]
    mutation: Mutation | None
    similar: Similar
    previous: str | None
    next: str | None
    random: str
    missing: list[MissingStage]
    panels: list[FilledPanel]


def memory_response(tables: Tables, memory: Memory) -> MemoryResponse:
    """The JSON of a memory page."""
    study = tables.study
    page = memory_page(tables, str(memory))
    top = page.value.token if page.value else None
    edges = study.settings["histogram_edges"]
    sample = [
        replace(prefix_row(prefix, top), quantile=_quantile(page, edges, prefix.coefficient)) for prefix in page.sample
    ]
    before, after = neighbours(tables, memory)
    return MemoryResponse(
        memory=page.memory,
        gist=page.gist,
        layer=memory.layer,
        number=memory.memory,
        model=page.model,
        dtype=page.dtype,
        lens=study.settings.get("lens"),
        seen=page.seen,
        fired=page.fired,
        mean=page.mean,
        maximum=page.maximum,
        histogram=page.histogram,
        histogram_edges=edges,
        value=page.value,
        patterns=page.patterns,
        triggers=merged_rows(page.triggers, top),
        quantiles=_by_quantile(sample),
        sample=sample,
        negative=[prefix_row(prefix, top) for prefix in page.negative],
        mutation=mutation_of(tables, memory),
        similar=similar(tables, memory),
        previous=before,
        next=after,
        random=random_memory(tables),
        missing=missing_stages(study, _stages()),
        panels=memory_panels(tables, memory),
    )


def _stages() -> Iterator[str]:
    """The stages whose results are on this page."""
    return (name for name, stage in stages().items() if stage.measures or stage.memory_panels)


def _quantile(page: MemoryPage, edges: list[float], coefficient: float) -> float | None:
    """The share of firing prefixes in lower bins of the histogram plus half of those in the coefficient's own bin."""
    above = page.histogram[len(page.histogram) // 2 + 1 :]  # after the bin of 0
    if not sum(above):
        return None
    at = min(bisect_right(edges, coefficient), len(above) - 1)
    return (sum(above[:at]) + above[at] / 2) / sum(above)


def _by_quantile(sample: list[Row]) -> list[Row]:
    """The sampled prefix nearest to each quantile; none is used twice."""
    remaining = [row for row in sample if row.quantile is not None]
    chosen = []
    for quantile in _QUANTILES:
        if remaining:
            chosen.append(min(remaining, key=lambda row: abs(row.quantile - quantile)))  # type: ignore[operator]
            remaining.remove(chosen[-1])
    return sorted(chosen, key=lambda row: -row.coefficient)


@router.get("/L{layer:number}/{number:number}.json", responses=response_docs(MemoryResponse), tags=["study"])
def memory(request: Request, layer: Layer, number: Number) -> Json:
    """Everything about one memory."""
    return Json(memory_response(served_study(request).tables, Memory(layer, number)))


@router.get("/L{layer:number}/{number:number}", include_in_schema=False)
@takes(own=("tab", "pattern", "text"))
def html(request: Request, layer: int, number: int) -> Response:
    """The memory page."""
    searched(served_study(request).tables, Memory(layer, number))
    return html_page(request, "memory")


@router.get("/L{layer:number}.{number:number}", include_in_schema=False)
def by_name(layer: int, number: int) -> Response:
    """Redirects a memory's name to its page."""
    return RedirectResponse(f"/L{layer}/{number}")
