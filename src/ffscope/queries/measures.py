"""The measures of a memory, as the stages declare them, in SQL: what is selected, where it comes from, what it is compared by."""

from collections.abc import Container

from ffscope.queries.tables import LONGEST, Tables
from ffscope.stages.registry import measures, stages
from ffscope.stages.stage import Measure, Stage

_LONGEST_TEXT = 5 * LONGEST
RANGE_KINDS = ("real", "share", "count")


def measures_in(tables: Tables) -> dict[str, Measure]:
    """The measures that a study has."""
    return {name: measure for name, (stage, measure) in measures().items() if tables.study.has(stage.name)}


def measures_of_kind(*kinds: str) -> tuple[str, ...]:
    """The names of the measures of some kinds."""
    return tuple(name for name, (_, measure) in measures().items() if measure.kind in kinds)


def expression(name: str) -> str:
    """A measure as it is compared and sorted by."""
    return measures()[name][1].sql


def stage_of(name: str) -> str:
    """The stage that makes a measure."""
    return measures()[name][0].name


def selected(tables: Tables) -> list[str]:
    """The measures that a study has, as columns of a query."""
    return [f"{_shown(measure)} AS {name}" for name, measure in measures_in(tables).items()]


def joined(tables: Tables, among: Container[str] | None = None) -> str:
    """Where these columns come from: those of all stages, or of some."""
    wanted = [
        stage
        for name, stage in stages().items()
        if stage.measures and tables.study.has(name) and (among is None or name in among)
    ]
    return " ".join(["FROM memories", *(join for stage in wanted for join in _joins(stage))])


def _joins(stage: Stage) -> list[str]:
    source = [] if stage.source == "memories" else [f"LEFT JOIN {stage.source} USING (layer, memory)"]
    spelt = [
        f"LEFT JOIN vocabulary AS spelt_{measure.name} ON spelt_{measure.name}.token = {measure.sql}"
        for measure in stage.measures
        if measure.kind == "token"
    ]
    return source + spelt


def _shown(measure: Measure) -> str:
    """A measure as it is shown: a token by its text, no text longer than a page can bear."""
    if measure.kind == "token":
        return f"left(spelt_{measure.name}.text, {LONGEST})"
    return f"left({measure.sql}, {_LONGEST_TEXT})" if measure.kind == "text" else measure.sql
