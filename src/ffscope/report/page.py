"""report.html: one page with everything a study shows. It needs no network and no other file."""

import base64
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from ffscope.glossary import GLOSSARY
from ffscope.options.report import ReportOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.queries.tables import reading
from ffscope.report.catalogue import charted, guarded, sections
from ffscope.report.command import reproduce
from ffscope.report.drawn_figure import FORMS, DrawnFigure, draw_all
from ffscope.report.figure import Entry, Figure
from ffscope.report.patterns import select_annotators
from ffscope.report.summary import findings, sentence, write_summary
from ffscope.report.wording import percent
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.public import public, public_name
from ffscope.tokens import visible

_PREFIX_LENGTH = 60  # characters of a prefix in a table


@dataclass(frozen=True)
class Section:
    """A table of the page, as passed to its template; without an entry if the study has no data for it."""

    figure: Figure
    entry: Entry | None = None
    sentence: str = ""
    rows: Sequence[Any] = ()


def write_report(
    study: Study, *, annotators: list[str] | None = None, bare: bool = False, progress: ProgressCallback = no_progress
) -> Path:
    """Write summary.json, figures/ and report.html into a study; returns the page's path.

    Figure 2 shows these annotators, by default all. `bare` leaves titles out of the files in figures/.
    """
    study.need("triggers")
    start = time.perf_counter()
    summary = select_annotators(write_summary(study), annotators)
    drawn = draw_all(summary)
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


def _page(study: Study, summary: dict[str, Any], drawn: list[DrawnFigure]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ffscope.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        percent=percent, visible=lambda text: visible(str(text), longest=None), tail=_tail, unbroken=_unbroken
    )
    columns = _columns(summary)
    return environment.get_template("page.html.j2").render(
        manifest=study.manifest,
        name=public_name(study.manifest["model"]["source"] or study.manifest["model"]["family"]),
        summary=summary,
        glossary=GLOSSARY,
        findings=findings(summary),
        figures=[(charted()[figure.name], sentence(figure.name, summary), _image(figure)) for figure in drawn],
        sections=_sections(study, summary),
        columns=columns,
        layers=sorted({layer for _, values in columns for layer in values}),
        left_out={stage: done["why"] for stage, done in study.manifest["stages"].items() if not done["done"]},
        command=reproduce(study),
    )


def _sections(study: Study, summary: dict[str, Any]) -> list[Section]:
    filled = []
    with reading(study) as tables:
        for name, figure in sections().items():
            assert figure.rows is not None
            entry = summary.get(name)
            if entry is None:
                filled.append(Section(figure))
                continue
            with guarded(figure):
                filled.append(Section(figure, entry, figure.sentence(entry), figure.rows(tables, entry)))
    return filled


def _image(figure: DrawnFigure) -> str:
    """A data URL: ids inside one SVG cannot clash with another's, and no script in it can run. The caption has the title."""
    return "data:image/svg+xml;base64," + base64.b64encode(figure.bare().svg().encode()).decode()


def _tail(text: str) -> str:
    escaped = visible(text, longest=None)
    return escaped if len(escaped) <= _PREFIX_LENGTH else "…" + escaped[-_PREFIX_LENGTH:]


def _unbroken(text: str) -> str:
    """The text with a number and its percent sign on one line."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def _columns(summary: dict[str, Any]) -> list[tuple[str, dict[int, Any]]]:
    """The label of every series and its values by layer; series that begin in the lowest layers come first."""
    # Figures without a stage, such as people's patterns, come after those of the stages.
    rows = sorted((figure for name, figure in charted().items() if name in summary), key=lambda row: row.stage is None)
    columns = [
        (row.labels.get(series, series), dict(zip(summary[row.name]["layer"], numbers["value"], strict=True)))
        for row in rows
        for series, numbers in summary[row.name].get("series", {}).items()
    ]
    return sorted(columns, key=lambda column: min(column[1]))


def run(work: Work) -> None:
    """The stage."""
    options = work.options(ReportOptions)
    names = options.annotators.split(",") if options.annotators else None
    write_report(work.study, annotators=names, bare=options.bare, progress=work.progress)
