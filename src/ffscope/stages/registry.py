"""Which stages there are: the modules of this package, and what other packages add under the entry-point group `ffscope.stages`."""

import logging
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import ffscope.stages
from ffscope.stages.stage import Measure, Stage, Table

logger = logging.getLogger(__name__)
GROUP = "ffscope.stages"
_NO_ROWS = ("documentation", "registry", "stage")


@cache
def stages() -> dict[str, Stage]:
    """Every stage by its name, each after those that it needs."""
    rows = {row.name: row for row in _built_in()}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        plugin = _plugin(point, rows)
        if plugin is not None:
            rows[plugin.name] = plugin
    return {row.name: row for row in _ordered(rows)}


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


def _plugin(point: EntryPoint, rows: dict[str, Stage]) -> Stage | None:
    """A stage of another package; one that cannot be used is left out with a sentence, and the rest goes on."""
    row, problem = None, None
    try:
        row = point.load()
    except Exception as error:  # whatever another package does when it is imported
        problem = f"it cannot be imported: {type(error).__name__}: {error}"
    problem = problem or _clash(row, point, rows)
    if problem is None:
        return row
    package = point.dist.name if point.dist else point.value
    logger.warning("The stage %s of the package %s is left out: %s.", point.name, package, problem)
    return None


def _clash(row: Any, point: EntryPoint, rows: dict[str, Stage]) -> str | None:
    """Why a plugin's row does not fit beside the others; None where it does."""
    if not isinstance(row, Stage):
        return f"expected a Stage at {point.value}, found {type(row).__name__}"
    names = [row.name, *(table.name for table in row.tables), *(measure.name for measure in row.measures)]
    odd = [name for name in names if not re.fullmatch("[a-z][a-z0-9_]*", name)]
    if odd:
        return f"{odd[0]!r} is no name: expected small letters, digits and underscores"
    if row.name in rows or row.name in _COMMANDS:
        return f"the name {row.name!r} is taken"
    taken = {table.name for other in rows.values() for table in other.tables}
    taken_measures = {*_FIELDS, *(measure.name for other in rows.values() for measure in other.measures)}
    for table in row.tables:
        if table.name in taken:
            return f"its table {table.name!r} is another stage's"
    for measure in row.measures:
        if measure.name in taken_measures:
            return f"the name of its measure {measure.name!r} is taken"
    unknown = [name for name in row.needs if name not in rows]
    return f"it needs {unknown[0]!r}, and there is no such stage" if unknown else None


# What a search has beside the measures: a measure of such a name could not be asked for.
_FIELDS = (
    *("all", "hits", "layer", "layers", "limit", "logit", "loose", "memory", "offset", "probability", "promoted"),
    *("promotes", "q", "rank", "shown", "sort", "state", "token", "trigger"),
)
# Commands that are no stages; a stage of such a name would hide one.
_COMMANDS = ("run", "check", "convert", "trace", "demo", "show", "annotate", "search", "serve", "export")


def _ordered(rows: dict[str, Stage]) -> Iterator[Stage]:
    """Each row after those that it needs or names in `after`; of those that are free, the earlier known first."""
    left = dict(rows)
    while left:
        free = next(
            (row for row in left.values() if not {*row.needs, *row.after} & (left.keys() - {row.name})),
            next(iter(left.values())),  # rows that wait for each other come as they stand
        )
        yield left.pop(free.name)
