"""Which stages there are: the modules of this package, and what other packages add under the entry-point group `ffscope.stages`."""

import logging
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

import ffscope.stages
from ffscope.stages.stage import Measure, Stage, Table
from ffscope.stages.validation import problem

logger = logging.getLogger(__name__)
GROUP = "ffscope.stages"
_NO_ROWS = ("documentation", "registry", "stage", "validation")


@cache
def stages() -> dict[str, Stage]:
    """Every stage by its name, each after those that it needs."""
    rows = {row.name: row for row in _built_in()}
    return {row.name: row for row in _ordered({**rows, **_plugins(rows)})}


def stages_in_run() -> list[Stage]:
    """What `ffscope run` does after the search, in its order."""
    return [row for row in stages().values() if row.in_run]


@cache
def built_in() -> frozenset[str]:
    """The stages that come with ffscope."""
    return frozenset(row.name for row in _built_in())


def tables() -> dict[str, Table]:
    """Every table that a study may have, by the name of its file."""
    return {table.file: table for row in stages().values() for table in row.tables}


def measures() -> dict[str, tuple[Stage, Measure]]:
    """Every measure of a memory by its name, with the stage that makes it."""
    return {measure.name: (row, measure) for row in stages().values() for measure in row.measures}


def _built_in() -> Iterator[Stage]:
    for module in pkgutil.iter_modules(ffscope.stages.__path__):
        if module.name not in _NO_ROWS:
            yield import_module(f"ffscope.stages.{module.name}").STAGE


def _plugins(built_in: dict[str, Stage]) -> dict[str, Stage]:
    """The stages of other packages; one that cannot be used is left out with a sentence, and the rest goes on."""
    rows, points = dict(built_in), {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            row = point.load()
            reason = problem(row, rows)
        except Exception as error:  # whatever another package does when it is imported
            reason = f"it cannot be imported: {type(error).__name__}: {error}"
        if reason is None:
            rows[row.name], points[row.name] = row, point
        else:
            _leave_out(point, reason)
    # One may need another, which comes later in the alphabet, or is left out for what it needs itself.
    while lost := [row for row in rows.values() if not set(row.needs) <= rows.keys()]:
        missing = next(name for name in lost[0].needs if name not in rows)
        _leave_out(points[lost[0].name], f"it needs {missing!r}, and there is no such stage")
        del rows[lost[0].name]
    return {name: row for name, row in rows.items() if name not in built_in}


def _leave_out(point: EntryPoint, reason: str) -> None:
    package = point.dist.name if point.dist else point.value
    logger.warning("The stage %s of the package %s is left out: %s.", point.name, package, reason)


def _ordered(rows: dict[str, Stage]) -> Iterator[Stage]:
    """Each row after those that it needs or names in `after`; of those that are free, the earlier known first."""
    left = dict(rows)
    while left:
        free = next(
            (row for row in left.values() if not {*row.needs, *row.after} & (left.keys() - {row.name})),
            next(iter(left.values())),  # rows that wait for each other come as they stand
        )
        yield left.pop(free.name)
