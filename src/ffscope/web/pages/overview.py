"""The overview: what was studied, and the results."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ffscope.queries.layer import LayerRow, layer_rows
from ffscope.queries.tables import Tables
from ffscope.queries.values import predictive_values
from ffscope.report.catalogue import charted
from ffscope.report.command import reproduce
from ffscope.report.figure import Figure, Finding
from ffscope.report.summary import findings
from ffscope.stages.registry import stages
from ffscope.study.folder import Study
from ffscope.web.about import study_name
from ffscope.web.dependencies import html_page, response_docs, served_study
from ffscope.web.drawing import Drawing
from ffscope.web.missing_stages import MissingStage, missing_stages
from ffscope.web.open_study import OpenStudy
from ffscope.web.parameters import takes
from ffscope.web.responses import Json
from ffscope.web.rows import Row, prefix_row

router = APIRouter()
_PREDICTIVE = 10


@dataclass(frozen=True)
class Predictive:
    """A value that gives one token a high probability, and a trigger of its key."""

    memory: str
    max_prob: float
    prediction: str
    triggers: int
    precision: float | None
    trigger: Row | None


@dataclass(frozen=True)
class OverviewResponse:
    """The JSON of the overview. `older`: a stage was run after the figures were drawn."""

    name: str
    model: dict[str, Any]
    corpus: dict[str, Any]
    settings: dict[str, Any]
    stages: dict[str, Any]
    versions: dict[str, str]
    command: str
    findings: list[Finding]
    figures: list[Drawing]
    older: bool
    layers: list[LayerRow]
    predictive: list[Predictive]
    missing: list[MissingStage]


def overview_response(tables: Tables, summary: dict[str, Any]) -> OverviewResponse:
    """The JSON of the overview; an empty summary gives no figures and findings."""
    study, manifest = tables.study, tables.study.manifest
    return OverviewResponse(
        name=study_name(study),
        model=manifest.get("model", {}),
        corpus=_corpus(study),
        settings=manifest.get("settings", {}),
        stages=manifest.get("stages", {}),
        versions=manifest.get("versions", {}),
        command=reproduce(study),
        findings=findings(summary),
        figures=_drawings(study, summary),
        older=study.has("report") and list(manifest["stages"])[-1] != "report",
        layers=layer_rows(tables),
        predictive=_predictive(tables) if study.has("values") and study.has("agreement") else [],
        missing=missing_stages(study, _stages()),
    )


def _stages() -> Iterator[str]:
    """The stages that have their own command."""
    return (name for name, stage in stages().items() if stage.command == "own")


def _corpus(study: Study) -> dict[str, Any]:
    """The corpus, and how much of it was searched: --minutes may have ended the search early."""
    stage = study.manifest["stages"]["triggers"]
    return {**study.manifest["corpus"], "searched": {name: stage[name] for name in ("sentences", "prefixes")}}


def _drawings(study: Study, summary: dict[str, Any]) -> list[Drawing]:
    """The report's figures: read from its files, which is fast, or else drawn again."""
    with suppress(OSError, ValueError, KeyError):
        return [_saved_figure(study, figure, summary) for name, figure in charted().items() if name in summary]
    from ffscope.report.drawn_figure import draw_all

    return [_drawing(charted()[drawn.name], summary, drawn.spec) for drawn in draw_all(summary)]


def _saved_figure(study: Study, figure: Figure, summary: dict[str, Any]) -> Drawing:
    spec = json.loads(study.path(f"figures/{figure.name}.json").read_text(encoding="utf-8"))
    return _drawing(figure, summary, spec)


def _drawing(figure: Figure, summary: dict[str, Any], spec: dict[str, Any]) -> Drawing:
    sentence = figure.sentence(summary[figure.name])
    return Drawing(figure.name, figure.title, sentence, spec, figure.number, figure.how_to_read)


def _predictive(tables: Tables) -> list[Predictive]:
    return [
        Predictive(
            memory=value.memory,
            max_prob=value.max_prob,
            prediction=value.prediction,
            triggers=value.triggers,
            precision=value.precision,
            trigger=None if value.trigger is None else prefix_row(value.trigger, value.token),
        )
        for value in predictive_values(tables, _PREDICTIVE)
    ]


def cached_overview(study: OpenStudy) -> OverviewResponse:
    """The overview of the served study, computed once after each change of the study."""
    return study.cached("overview", lambda tables: overview_response(tables, study.summary()))


@router.get("/index.json", responses=response_docs(OverviewResponse), tags=["study"])
def overview(request: Request) -> Json:
    """What was studied, the findings, the figures, the layers."""
    return Json(cached_overview(served_study(request)))


@router.get("/", include_in_schema=False)
@takes()
def html(request: Request) -> Response:
    """The overview page."""
    return html_page(request, "overview")
