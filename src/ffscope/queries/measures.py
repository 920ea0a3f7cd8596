"""The measures of a memory that the stages declare, as SQL: expressions, columns and joins."""

import logging
from collections.abc import Container

from ffscope.errors import StudyError
from ffscope.queries.tables import LONGEST, Tables
from ffscope.stages.registry import built_in, measures, stages
from ffscope.stages.stage import Measure, Stage

logger = logging.getLogger(__name__)
_LONGEST_TEXT = 5 * LONGEST
RANGE_KINDS = ("real", "share", "count")
_SQL_TYPES = {"real": "DOUBLE", "share": "DOUBLE", "count": "BIGINT", "answer": "BOOLEAN", "choice": "VARCHAR"}


def measures_in(tables: Tables) -> dict[str, Measure]:
    """The measures whose stages a study has, and that its tables can compute."""
    declared = {name: row for name, row in measures().items() if tables.study.has(row[0].name)}
    return {name: measure for name, (stage, measure) in declared.items() if _works(tables, stage, measure)}


def _works(tables: Tables, stage: Stage, measure: Measure) -> bool:
    """Whether a measure can be computed. One from another package may use a missing column, which must not break the others."""
    if stage.name in built_in():
        return True
    if measure.name not in tables.working_measures:
        try:
            tables.rows(f"SELECT {_shown(measure)} FROM memories {' '.join(_joins(stage, [measure]))} LIMIT 1")
            tables.working_measures[measure.name] = True
        except StudyError as error:
            logger.warning("The measure %s of the stage %s is left out. %s", measure.name, stage.name, error)
            tables.working_measures[measure.name] = False
    return tables.working_measures[measure.name]


def measures_of_kind(*kinds: str) -> tuple[str, ...]:
    """The names of the measures of these kinds."""
    return tuple(name for name, (_, measure) in measures().items() if measure.kind in kinds)


def expression(name: str) -> str:
    """The SQL expression by which a measure is compared and sorted."""
    return f"({measures()[name][1].sql})"


def stage_of(name: str) -> str:
    """The stage that computes a measure."""
    return measures()[name][0].name


def selected(tables: Tables) -> list[str]:
    """The measures of a study, as columns of a query."""
    return [f"{_shown(measure)} AS {name}" for name, measure in measures_in(tables).items()]


def mean(measure: Measure) -> str:
    """The SQL expression for the mean of a measure over a group of rows."""
    return f"avg(({measure.sql})::{'INT' if measure.kind == 'answer' else 'DOUBLE'})"


def joined(tables: Tables, among: Container[str] | None = None) -> str:
    """The FROM clause with the tables of these measures: of all stages, or of `among`."""
    available = measures_in(tables)
    joins = []
    for name, stage in stages().items():
        needed = [measure for measure in stage.measures if measure.name in available]
        if needed and (among is None or name in among):
            joins += _joins(stage, needed)
    return " ".join(["FROM memories", *joins])


def _joins(stage: Stage, needed: list[Measure]) -> list[str]:
    """The joins for some measures of a stage: its table, and the vocabulary for the text of tokens."""
    source = [] if stage.source == "memories" else [f"LEFT JOIN {stage.source} USING (layer, memory)"]
    return source + [
        f"LEFT JOIN vocabulary AS spelt_{measure.name} ON spelt_{measure.name}.token = ({measure.sql})"
        for measure in needed
        if measure.kind == "token"
    ]


def _shown(measure: Measure) -> str:
    """The SQL expression for a measure as it is shown: tokens as text, long texts cut, other kinds cast to their type."""
    if measure.kind == "token":
        return f"left(spelt_{measure.name}.text, {LONGEST})"
    if measure.kind == "text":
        return f"left(({measure.sql})::VARCHAR, {_LONGEST_TEXT})"
    return f"({measure.sql})::{_SQL_TYPES[measure.kind]}"
