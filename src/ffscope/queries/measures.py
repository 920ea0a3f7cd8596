"""The measures of a memory, as the stages declare them, in SQL: what is selected, where it comes from, what it is compared by."""

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
    """The measures that a study has, and that its tables can answer."""
    known = {name: row for name, row in measures().items() if tables.study.has(row[0].name)}
    return {name: measure for name, (stage, measure) in known.items() if _works(tables, stage, measure)}


def _works(tables: Tables, stage: Stage, measure: Measure) -> bool:
    """Whether a measure can be asked for: one of another package may name what is not there, which must not cost the others."""
    if stage.name in built_in():
        return True
    if measure.name not in tables.tried:
        try:
            tables.rows(f"SELECT {_shown(measure)} FROM memories {' '.join(_joins(stage, [measure]))} LIMIT 1")
            tables.tried[measure.name] = True
        except StudyError as error:
            logger.warning("The measure %s of the stage %s is left out. %s", measure.name, stage.name, error)
            tables.tried[measure.name] = False
    return tables.tried[measure.name]


def measures_of_kind(*kinds: str) -> tuple[str, ...]:
    """The names of the measures of some kinds."""
    return tuple(name for name, (_, measure) in measures().items() if measure.kind in kinds)


def expression(name: str) -> str:
    """A measure as it is compared and sorted by."""
    return f"({measures()[name][1].sql})"


def stage_of(name: str) -> str:
    """The stage that makes a measure."""
    return measures()[name][0].name


def selected(tables: Tables) -> list[str]:
    """The measures that a study has, as columns of a query."""
    return [f"{_shown(measure)} AS {name}" for name, measure in measures_in(tables).items()]


def mean(measure: Measure) -> str:
    """A measure's mean over the rows of a group."""
    return f"avg(({measure.sql})::{'INT' if measure.kind == 'answer' else 'DOUBLE'})"


def joined(tables: Tables, among: Container[str] | None = None) -> str:
    """Where these columns come from: those of all stages, or of some."""
    known = measures_in(tables)
    joins = []
    for name, stage in stages().items():
        asked = [measure for measure in stage.measures if measure.name in known]
        if asked and (among is None or name in among):
            joins += _joins(stage, asked)
    return " ".join(["FROM memories", *joins])


def _joins(stage: Stage, asked: list[Measure]) -> list[str]:
    """What is joined to the memories for some measures of a stage: its table, and where the text of tokens comes from."""
    source = [] if stage.source == "memories" else [f"LEFT JOIN {stage.source} USING (layer, memory)"]
    return source + [
        f"LEFT JOIN vocabulary AS spelt_{measure.name} ON spelt_{measure.name}.token = ({measure.sql})"
        for measure in asked
        if measure.kind == "token"
    ]


def _shown(measure: Measure) -> str:
    """A measure as it is shown, of the type of its kind: a token by its text, no text longer than a page can bear."""
    if measure.kind == "token":
        return f"left(spelt_{measure.name}.text, {LONGEST})"
    if measure.kind == "text":
        return f"left(({measure.sql})::VARCHAR, {_LONGEST_TEXT})"
    return f"({measure.sql})::{_SQL_TYPES[measure.kind]}"
