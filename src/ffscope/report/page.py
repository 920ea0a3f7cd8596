"""report.html: one page with everything a study shows, which needs no network and no other file."""

import base64
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from ffscope.options.report import ReportOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.queries.patterns import pattern_examples
from ffscope.queries.tables import reading, spellings
from ffscope.queries.values import predictive_values
from ffscope.report.command import reproduce
from ffscope.report.figures import FORMS, Figure, figures, of_annotators
from ffscope.report.labels import LABELS
from ffscope.report.paper import PAPER
from ffscope.report.summary import write_summary
from ffscope.report.words import percent, sentence, telling
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.public import public, public_name
from ffscope.tokens import visible

_TABLES = ("pattern_examples", "predictive_values", "last_layer")
_SHOWN = 60  # characters of a trigger


@dataclass(frozen=True)
class Change:
    """One of the last layer's composition cases: what the residual predicted, and what the output does."""

    text: str
    before: str
    after: str
    similarity: float
    related: bool


def write_report(
    study: Study, *, annotators: list[str] | None = None, bare: bool = False, progress: ProgressCallback = no_progress
) -> Path:
    """Leave summary.json, figures/ and report.html in a study; gives the page's path.

    Figure 2 is of some annotators or all. `bare` keeps titles out of the files in figures/; the page has them all the same.
    """
    study.need("triggers")
    start = time.perf_counter()
    summary = of_annotators(write_summary(study), annotators)
    drawn = figures(summary)
    study.make_folder("figures")
    for number, figure in enumerate(drawn):
        progress(Progress("report", number, len(drawn), unit="figures"))
        for form in FORMS:
            with study.replacing(f"figures/{figure.name}.{form}") as path:
                (figure.bare() if bare else figure).save(path, form)
    with study.replacing("report.html") as path:
        path.write_text(_page(public(study), summary, drawn), encoding="utf-8", errors="backslashreplace")
    study.finish("report", {}, seconds=time.perf_counter() - start)
    progress(Progress("report", len(drawn), len(drawn), unit="figures"))
    return study.path("report.html")


def _page(study: Study, summary: dict[str, Any], drawn: list[Figure]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ffscope.report", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    layers = _layers(summary)
    environment.filters.update(percent=percent, seen=lambda text: visible(str(text), longest=None))
    return environment.get_template("page.html.j2").render(
        manifest=study.manifest,
        name=public_name(study.manifest["model"]["source"] or study.manifest["model"]["family"]),
        summary=summary,
        telling=telling(summary),
        figures=[(figure, sentence(figure.name, summary), _image(figure)) for figure in drawn],
        sentences={name: sentence(name, summary) for name in _TABLES if name in summary},
        examples=pattern_examples(study.folder) if "pattern_examples" in summary else [],
        values=predictive_values(study.folder) if "predictive_values" in summary else [],
        changes=last_layer_changes(study) if "last_layer" in summary else [],
        layers=layers,
        columns=list(dict.fromkeys(name for row in layers for name in row)),
        left_out={stage: done["why"] for stage, done in study.manifest["stages"].items() if not done["done"]},
        command=reproduce(study),
        paper=PAPER,
        labels=LABELS,
        tail=_tail,
    )


def _image(figure: Figure) -> str:
    """As an image of its own: names inside one drawing do not meet those of another, and nothing in it can run."""
    return "data:image/svg+xml;base64," + base64.b64encode(figure.svg().encode()).decode()


def _tail(text: str) -> str:
    shown = visible(text, longest=None)
    return shown if len(shown) <= _SHOWN else "…" + shown[-_SHOWN:]


def _layers(summary: dict[str, Any]) -> list[dict[str, Any]]:
    """One row a layer with the value of every share and median."""
    rows: dict[int, dict[str, Any]] = {}
    for entry in summary.values():
        for name, series in entry.get("series", {}).items():
            for layer, value in zip(entry["layer"], series["value"], strict=True):
                rows.setdefault(layer, {"layer": layer})[name if entry["figure"] != 11 else f"case {name}"] = value
    return [rows[layer] for layer in sorted(rows)]


def last_layer_changes(study: Study) -> list[Change]:
    """The sampled composition cases of the last layer, with their words."""
    with reading(study) as tables:
        rows = tables.rows(
            "SELECT text, residual_top, output_top, similarity, related "
            "FROM last_layer JOIN examples USING (example) ORDER BY example"
        )
        spelt = spellings(tables, [token for row in rows for token in row[1:3]])
    return [
        Change(text, spelt.get(before, f"#{before}"), spelt.get(after, f"#{after}"), similarity, related)
        for text, before, after, similarity, related in rows
    ]


def run(work: Work) -> None:
    """The stage."""
    options = work.options(ReportOptions)
    names = options.annotators.split(",") if options.annotators else None
    write_report(work.study, annotators=names, bare=options.bare, progress=work.progress)
