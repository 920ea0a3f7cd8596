"""The report's figures and tables: those that the stages declare."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

from ffscope.report.figure import Figure
from ffscope.stages.registry import stages
from ffscope.stages.stage import resolve

logger = logging.getLogger(__name__)


@cache
def figures() -> dict[str, Figure]:
    """Every figure and table by its name, in the order of the stages."""
    rows: dict[str, Figure] = {}
    for stage in stages().values():
        for path in stage.figures:
            row = _figure(stage.name, path)
            if row is not None:
                rows.setdefault(row.name, row)
    return rows


def charted() -> dict[str, Figure]:
    """The figures with a chart, in the paper's order; those without a number in the paper come last."""
    return _numbered(row for row in figures().values() if row.chart is not None)


def sections() -> dict[str, Figure]:
    """The figures with a table in the report, in the same order."""
    return _numbered(row for row in figures().values() if row.rows is not None)


@contextmanager
def guarded(figure: Figure) -> Iterator[None]:
    """An error in a figure of another package leaves out that figure only."""
    try:
        yield
    except Exception as error:
        if figure.series.__module__.startswith("ffscope."):
            raise
        logger.warning("The figure %s is left out: %s: %s", figure.name, type(error).__name__, error)


def _figure(stage: str, path: str) -> Figure | None:
    """The figure at a path that a stage names; None, with a warning, if another package's cannot be used."""
    try:
        figure = resolve(path)
        if not isinstance(figure, Figure):
            raise TypeError(f"expected a Figure, found {type(figure).__name__}")
        if figure.chart is not None and not figure.how_to_read:
            raise TypeError("it has a chart and no how_to_read")
    except (ImportError, AttributeError, TypeError) as error:
        if path.startswith("ffscope."):
            raise
        logger.warning("The figure %s of the stage %s is left out: %s.", path, stage, error)
        return None
    return figure


def _numbered(rows: Iterable[Figure]) -> dict[str, Figure]:
    return {row.name: row for row in sorted(rows, key=lambda row: (row.number is None, row.number or 0))}
