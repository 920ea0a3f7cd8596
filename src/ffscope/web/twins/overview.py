"""The first page: what was studied, and what it shows."""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffscope.queries.layer import LayerRow, layer_rows
from ffscope.queries.tables import Tables
from ffscope.queries.values import predictive_values
from ffscope.report.catalogue import charted
from ffscope.report.command import reproduce
from ffscope.report.figure import Figure
from ffscope.report.summary import headlines, sentence
from ffscope.study.folder import Study
from ffscope.study.public import folder_name, public_name
from ffscope.web.twins.layer import Drawing
from ffscope.web.twins.missing import Missing, missing
from ffscope.web.twins.rows import Row, shown

_PREDICTIVE = 10


@dataclass(frozen=True)
class Predictive:
    """A value that is sure of a token, and a trigger of its key."""

    memory: str
    max_prob: float
    prediction: str
    triggers: int
    precision: float | None
    trigger: Row | None


@dataclass(frozen=True)
class OverviewTwin:
    """A study at a glance. `older`: a stage was done after the figures were drawn."""

    name: str
    model: dict[str, Any]
    corpus: dict[str, Any]
    settings: dict[str, Any]
    stages: dict[str, Any]
    versions: dict[str, str]
    command: str
    telling: list[str]
    figures: list[Drawing]
    older: bool
    layers: list[LayerRow]
    predictive: list[Predictive]
    missing: list[Missing]


def about(study: Study) -> dict[str, Any]:
    """What every page knows of the study."""
    model = study.manifest["model"]
    return {
        "name": public_name(model["source"] or model["family"]),
        "layers": len(model["memories"]),
        "memories": model["memories"],
        "folder": folder_name(study.folder),
        "id": hashlib.sha256(os.fsencode(study.folder.resolve())).hexdigest()[:16],  # tells studies of one name apart
        "top": study.settings["top"],
        "lens": study.settings.get("lens"),
        "stages": [stage for stage in study.manifest["stages"] if study.has(stage)],
    }


def read_summary(folder: Path) -> dict[str, Any]:
    """What a study's report is drawn from; empty where there is none that can be read."""
    with suppress(OSError, ValueError):
        found = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
        return found if isinstance(found, dict) else {}
    return {}


def overview_twin(tables: Tables, summary: dict[str, Any]) -> OverviewTwin:
    """What a study shows, with the figures of its report's summary; of an empty one there are none."""
    study, stages = tables.study, tables.study.manifest["stages"]
    return OverviewTwin(
        name=about(study)["name"],
        **{part: study.manifest.get(part, {}) for part in ("model", "settings", "stages", "versions")},
        corpus=_corpus(study),
        command=reproduce(study),
        telling=headlines(summary),
        figures=_drawings(study, summary),
        older=study.has("report") and list(stages)[-1] != "report",
        layers=layer_rows(tables),
        predictive=_predictive(tables) if study.has("values") and study.has("agreement") else [],
        missing=missing(study, "values", "agreement", "mutation", "composition", "refinement", "patterns", "report"),
    )


def _corpus(study: Study) -> dict[str, Any]:
    """The text, with what was searched of it: --minutes may have ended the search early."""
    stage = study.manifest["stages"]["triggers"]
    return {**study.manifest["corpus"], "searched": {name: stage[name] for name in ("sentences", "prefixes")}}


def _drawings(study: Study, summary: dict[str, Any]) -> list[Drawing]:
    """The report's figures: as it left them, which is quick, or else drawn anew."""
    with suppress(OSError, ValueError, KeyError):
        return [_kept(study, figure, summary) for name, figure in charted().items() if name in summary]
    from ffscope.report.drawn_figure import draw_all

    return [
        Drawing(drawn.name, drawn.title, sentence(drawn.name, summary), drawn.spec, drawn.number)
        for drawn in draw_all(summary)
    ]


def _kept(study: Study, figure: Figure, summary: dict[str, Any]) -> Drawing:
    spec = json.loads(study.path(f"figures/{figure.name}.json").read_text(encoding="utf-8"))
    return Drawing(figure.name, figure.title, figure.sentence(summary[figure.name]), spec, figure.number)


def _predictive(tables: Tables) -> list[Predictive]:
    taken = ("memory", "max_prob", "prediction", "triggers", "precision")
    return [
        Predictive(
            **{name: getattr(one, name) for name in taken},
            trigger=None if one.trigger is None else shown(one.trigger, one.token),
        )
        for one in predictive_values(tables, _PREDICTIVE)
    ]
