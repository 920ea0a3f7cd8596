"""Checks the declaration of a stage from another package."""

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from ffscope.options.corpus import CorpusOptions
from ffscope.options.engine import EngineOptions
from ffscope.options.fields import option_fields
from ffscope.options.model import LoadOptions, ReloadOptions
from ffscope.options.search import SearchOptions
from ffscope.stages.stage import KINDS, TYPES, Stage

# Commands that are not stages, and the special value of `command`: a stage with such a name would hide them.
_COMMANDS = (
    "own",
    "run",
    "check",
    "convert",
    "trace",
    "demo",
    "diff",
    "edit",
    "show",
    "annotate",
    "search",
    "serve",
    "export",
    "cache",
    "status",
)
# Parameters of a search besides the measures: a measure with such a name could not be used as a filter.
_FIELDS = (
    *("all", "best", "found", "hits", "layer", "layers", "limit", "logit", "loose", "memory", "offset", "place"),
    *("probability", "promoted", "promotes", "q", "rank", "shown", "sort", "state", "token", "trigger"),
)
_LAYER_COLUMNS = ("layer", "memories", "searched", "dead")  # columns of the overview besides the means
_PARAMETERS = ("checkpoint", "debug", "out", "out_", "study")  # of commands, besides the options


def find_problem(row: Any, rows: Mapping[str, Stage]) -> str | None:
    """The first problem of a stage's declaration, or None. Its `needs` are not checked."""
    if not isinstance(row, Stage):
        return f"expected a Stage, found {type(row).__name__}"
    return next((problem for check in _CHECKS for problem in check(row, rows)), None)


def _names(row: Stage, rows: Mapping[str, Stage]) -> Iterator[str]:
    names = [row.name, *(table.name for table in row.tables), *(measure.name for measure in row.measures)]
    for name in names:
        if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
            yield f"{name!r} is not a valid name: expected lower-case letters, digits and underscores"
    if row.name in rows or row.name in _COMMANDS:
        yield f"the name {row.name!r} is already used"


def _functions(row: Stage, _rows: Mapping[str, Stage]) -> Iterator[str]:
    if [bool(function) for function in (row.rows, row.shards, row.run, row.observe)].count(True) != 1:
        yield "expected exactly one of rows, shards, run and observe"
    elif ((row.rows or row.shards) and not row.tables) or (
        row.observe and row.name not in {table.name for table in row.tables}
    ):
        yield "it declares no table to write; with observe, the table must have the stage's name"


def _tables(row: Stage, rows: Mapping[str, Stage]) -> Iterator[str]:
    table_names = {table.name for other in rows.values() for table in other.tables}
    for table in row.tables:
        if table.name in table_names:
            yield f"its table {table.name!r} belongs to another stage"
        for column in table.columns:
            if column.type not in TYPES:
                yield f"its column {column.name!r} has type {column.type!r}; expected one of {', '.join(TYPES)}"


def _options(row: Stage, rows: Mapping[str, Stage]) -> Iterator[str]:
    kind_of_field: dict[str, type] = {}
    for kind in (CorpusOptions, SearchOptions, LoadOptions, ReloadOptions, EngineOptions, *_kinds(rows)):
        kind_of_field |= {field.name: kind for field in option_fields(kind)}
    for kind in row.options:
        if not is_dataclass(kind):
            yield f"its options {kind!r} are not a dataclass"
            return
        for field in option_fields(kind):
            if field.is_required:
                yield f"its option {field.name!r} has no default"
            if field.name in _PARAMETERS or kind_of_field.get(field.name, kind) is not kind:
                yield f"the name of its option {field.name!r} is already used"


def _kinds(rows: Mapping[str, Stage]) -> Iterator[type]:
    return (kind for other in rows.values() for kind in other.options)


def _measures(row: Stage, rows: Mapping[str, Stage]) -> Iterator[str]:
    others = [measure for other in rows.values() for measure in other.measures]
    names = {*_FIELDS, *(measure.name for measure in others)}
    means = {*_LAYER_COLUMNS, *(measure.mean.name for measure in others if measure.mean)}
    if row.measures and row.source not in {table.name for table in row.tables}:
        yield f"its measures use the source {row.source!r}, which is not one of its tables"
    for measure in row.measures:
        if measure.name in names:
            yield f"the name of its measure {measure.name!r} is already used"
        if measure.kind not in KINDS:
            yield f"its measure {measure.name!r} has kind {measure.kind!r}; expected one of {', '.join(KINDS)}"
        if bool(measure.choices) != (measure.kind == "choice"):
            yield f"its measure {measure.name!r} must have choices if, and only if, its kind is choice"
        if measure.mean and (measure.kind in ("choice", "token", "text") or measure.mean.name in means):
            yield f"its measure {measure.name!r} has a mean but is not a number, or the name of the mean is already used"
        names.add(measure.name)


_CHECKS = (_names, _functions, _tables, _options, _measures)
