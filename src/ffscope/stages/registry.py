"""The registry of stages: the modules of this package, and plugins in the entry-point group `ffscope.stages`."""

import logging
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points

import ffscope.stages
from ffscope.stages.stage import Measure, Stage, Table
from ffscope.stages.validation import find_problem

logger = logging.getLogger(__name__)
GROUP = "ffscope.stages"
_NOT_STAGES = ("documentation", "registry", "shards", "stage", "validation")


@cache
def stages() -> dict[str, Stage]:
    """All stages by name, each after the stages it needs."""
    rows = {row.name: row for row in _built_in()}
    return {row.name: row for row in _in_order({**rows, **_plugins(rows)})}


def stages_in_run() -> list[Stage]:
    """The stages that `ffscope run` runs after the search, in order."""
    return [row for row in stages().values() if row.in_run]


@cache
def built_in() -> frozenset[str]:
    """The names of the stages that are part of ffscope."""
    return frozenset(row.name for row in _built_in())


def tables() -> dict[str, Table]:
    """All tables that a study may have, by file name."""
    return {table.file: table for row in stages().values() for table in row.tables}


def measures() -> dict[str, tuple[Stage, Measure]]:
    """All measures by name, each with the stage that computes it."""
    return {measure.name: (row, measure) for row in stages().values() for measure in row.measures}


def _built_in() -> Iterator[Stage]:
    for module in pkgutil.iter_modules(ffscope.stages.__path__):
        if module.name not in _NOT_STAGES:
            yield import_module(f"ffscope.stages.{module.name}").STAGE


def _plugins(built_in: dict[str, Stage]) -> dict[str, Stage]:
    """The stages of other packages. An unusable one is skipped with a warning."""
    rows, points = dict(built_in), {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            row = point.load()
            reason = find_problem(row, rows)
        except Exception as error:  # importing another package can raise anything
            reason = f"it cannot be imported: {type(error).__name__}: {error}"
        if reason is None:
            rows[row.name], points[row.name] = row, point
        else:
            _skip(point, reason)
    # A stage may need one that is later in the alphabet, or one that was skipped.
    while unmet := [row for row in rows.values() if not set(row.needs) <= rows.keys()]:
        missing = next(name for name in unmet[0].needs if name not in rows)
        _skip(points[unmet[0].name], f"it needs the stage {missing!r}, which does not exist")
        del rows[unmet[0].name]
    return {name: row for name, row in rows.items() if name not in built_in}


def _skip(point: EntryPoint, reason: str) -> None:
    package = point.dist.name if point.dist else point.value
    logger.warning("The stage %s of the package %s is skipped: %s.", point.name, package, reason)


def _in_order(rows: dict[str, Stage]) -> Iterator[Stage]:
    """Each row after those in its `needs` and `after`; otherwise in the order given."""
    remaining = dict(rows)
    while remaining:
        free = next(
            (row for row in remaining.values() if not {*row.needs, *row.after} & (remaining.keys() - {row.name})),
            next(iter(remaining.values())),  # rows that wait for each other keep their order
        )
        yield remaining.pop(free.name)
