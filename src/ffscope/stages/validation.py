"""Whether a stage of another package fits beside the others: what is wrong with its row, in a sentence."""

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from typing import Any

from ffscope.options.corpus import CorpusOptions
from ffscope.options.fields import option_fields
from ffscope.options.model import LoadOptions, ReloadOptions
from ffscope.options.search import SearchOptions
from ffscope.stages.stage import KINDS, TYPES, Stage

# Commands that are no stages, and what a row's `command` says of itself: a stage of such a name would hide them.
_COMMANDS = ("own", "run", "check", "convert", "trace", "demo", "show", "annotate", "search", "serve", "export")
# What a search has beside the measures: a measure of such a name could not be asked for.
_FIELDS = (
    *("all", "best", "found", "hits", "layer", "layers", "limit", "logit", "loose", "memory", "offset", "place"),
    *("probability", "promoted", "promotes", "q", "rank", "shown", "sort", "state", "token", "trigger"),
)
_LAYER_COLUMNS = ("layer", "memories", "searched", "dead")  # of the overview, beside the means
_PARAMETERS = ("checkpoint", "debug", "out", "out_", "study")  # that commands have beside the options


def problem(row: Any, rows: Mapping[str, Stage]) -> str | None:
    """Why a row does not fit beside the others; None where it does. Which stages it needs is another question."""
    if not isinstance(row, Stage):
        return f"expected a Stage, found {type(row).__name__}"
    return next((found for check in _CHECKS for found in check(row, rows)), None)


def _names(row: Stage, rows: Mapping[str, Stage]) -> Iterator[str]:
    names = [row.name, *(table.name for table in row.tables), *(measure.name for measure in row.measures)]
    for name in names:
        if not re.fullmatch("[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
            yield f"{name!r} is no name: expected small letters, digits and underscores"
    if row.name in rows or row.name in _COMMANDS:
        yield f"the name {row.name!r} is taken"


def _ways(row: Stage, _rows: Mapping[str, Stage]) -> Iterator[str]:
    if [bool(way) for way in (row.rows, row.run, row.observe)].count(True) != 1:
        yield "it has to name what runs it: one of rows, run and observe"
    elif (row.rows and not row.tables) or (row.observe and row.name not in {table.name for table in row.tables}):
        yield "it declares no table to write, which with observe has the stage's name"


def _tables(row: Stage, rows: Mapping[str, Stage]) -> Iterator[str]:
    taken = {table.name for other in rows.values() for table in other.tables}
    for table in row.tables:
        if table.name in taken:
            yield f"its table {table.name!r} is another stage's"
        for column in table.columns:
            if column.type not in TYPES:
                yield f"its column {column.name!r} has the type {column.type!r}; the types are {', '.join(TYPES)}"


def _options(row: Stage, rows: Mapping[str, Stage]) -> Iterator[str]:
    known: dict[str, type] = {}
    for kind in (CorpusOptions, SearchOptions, LoadOptions, ReloadOptions, *_kinds(rows)):
        known |= {field.name: kind for field in option_fields(kind)}
    for kind in row.options:
        if not is_dataclass(kind):
            yield f"its options {kind!r} are no dataclass"
            return
        for field in option_fields(kind):
            if field.is_required:
                yield f"its option {field.name!r} has no default"
            if field.name in _PARAMETERS or known.get(field.name, kind) is not kind:
                yield f"the name of its option {field.name!r} is taken"


def _kinds(rows: Mapping[str, Stage]) -> Iterator[type]:
    return (kind for other in rows.values() for kind in other.options)


def _measures(row: Stage, rows: Mapping[str, Stage]) -> Iterator[str]:
    others = [measure for other in rows.values() for measure in other.measures]
    names = {*_FIELDS, *(measure.name for measure in others)}
    means = {*_LAYER_COLUMNS, *(measure.mean.name for measure in others if measure.mean)}
    if row.measures and row.source not in {table.name for table in row.tables}:
        yield f"its measures are over {row.source!r}, which is no table of its own"
    for measure in row.measures:
        if measure.name in names:
            yield f"the name of its measure {measure.name!r} is taken"
        if measure.kind not in KINDS:
            yield f"its measure {measure.name!r} is of the kind {measure.kind!r}; the kinds are {', '.join(KINDS)}"
        if bool(measure.choices) != (measure.kind == "choice"):
            yield f"its measure {measure.name!r} needs choices if it is a choice, and only then"
        if measure.mean and (measure.kind in ("choice", "token", "text") or measure.mean.name in means):
            yield f"the mean of its measure {measure.name!r} is of no number, or its name is taken"
        names.add(measure.name)


_CHECKS = (_names, _ways, _tables, _options, _measures)
