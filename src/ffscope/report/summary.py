"""summary.json: the series behind every figure, with their intervals, from the study's tables alone."""

import json
from typing import Any

from ffscope.queries.tables import Tables, reading
from ffscope.report.catalogue import charted, figures, guarded, sections
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source
from ffscope.stages.registry import stages
from ffscope.study.folder import Study

Summary = dict[str, Any]


def summarise(study: Study) -> Summary:
    """The numbers of every figure and table that the study has data for, by name."""
    summary: Summary = {}
    with reading(study) as tables:
        for name, figure in figures().items():
            with guarded(figure):
                entry = _entry(figure, tables)
                if entry is not None:
                    _check(figure, entry)
                    summary[name] = entry
    return summary


def write_summary(study: Study) -> Summary:
    """Write summary.json into the study; returns its content."""
    summary = summarise(study)
    with study.replacing("summary.json") as path:
        path.write_text(json.dumps(summary, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return summary


def sentence(name: str, summary: Summary) -> str:
    """What a figure or table shows, compared with the paper."""
    return figures()[name].sentence(summary[name])


def findings(summary: Summary) -> list[Finding]:
    """The rows of "In short" that a study has numbers for, in the order of the figures."""
    rows: list[Finding] = []
    for name, figure in {**charted(), **sections()}.items():
        with guarded(figure):
            if figure.findings is not None and name in summary:
                rows += figure.findings(summary[name])
    return rows


def _entry(figure: Figure, tables: Tables) -> Entry | None:
    stage, study = figure.stage, tables.study
    if stage is not None and not (study.has(stage) and _has_rows(stage, tables)):
        return None
    source = Source(tables, figure.name)
    series = figure.series(source)
    if series is None:
        return None
    number = {} if figure.number is None else {"figure" if figure.chart else "table": figure.number}
    return {**number, **series, "model_layers": source.model["layers"]}


def _check(figure: Figure, entry: Entry) -> None:
    """Raise if an entry cannot be written as JSON or its sentences fail."""
    json.dumps(entry, allow_nan=False)
    figure.sentence(entry)
    for row in figure.findings(entry) if figure.findings is not None else ():
        if not isinstance(row, Finding):
            raise TypeError(f"expected a Finding, found {type(row).__name__}")


def _has_rows(stage: str, tables: Tables) -> bool:
    row = stages().get(stage)
    table = stage if row is None or row.table is None else row.table.name
    return tables.count(table) > 0
