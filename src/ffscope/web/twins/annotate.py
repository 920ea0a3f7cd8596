"""The pages on which people annotate."""

from dataclasses import dataclass
from typing import Any

from ffscope.annotating import drafts
from ffscope.annotating.drafts import Draft, DraftPattern
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import KINDS, LEAST, MOST, TRIGGERS
from ffscope.queries.annotations import done_by, drafts_begun, read
from ffscope.queries.prefixes import first_triggers
from ffscope.queries.tables import Tables, checked
from ffscope.report.patterns import beside
from ffscope.web.twins.layer import Drawing
from ffscope.web.twins.rows import Row, shown


@dataclass(frozen=True)
class Task:
    """A memory to annotate: whether it is done, and whether it is begun."""

    memory: str
    done: bool
    draft: bool


@dataclass(frozen=True)
class TasksTwin:
    """The memories that everyone annotates, how far a person is, and who else is at it."""

    annotator: str
    people: dict[str, int]
    memories: list[Task]
    done: int


@dataclass(frozen=True)
class TaskTwin:
    """One memory to annotate: its first triggers, what was marked last, the steps before it; and nothing of what programs found."""

    memory: str
    triggers: list[Row]
    patterns: list[DraftPattern]
    none: bool
    done: bool
    steps: list[Draft]
    least: int
    most: int
    kinds: list[str]


@dataclass(frozen=True)
class FigureTwin:
    """Figure 2 as the machine and a person have it; null where neither has looked."""

    figure: Drawing | None


def tasks_twin(tables: Tables, annotator: str, memories: list[Memory]) -> TasksTwin:
    """The memories that a person is asked to annotate; without a name nothing is done."""
    study = tables.study
    everyone = done_by(study)
    people = {name: len(theirs) for name, theirs in everyone.items()}
    if not annotator.strip():
        return TasksTwin("", people, [Task(str(memory), False, False) for memory in memories], 0)
    name = drafts.reader(study, annotator)
    done, begun = everyone.get(name, set()), drafts_begun(study, name)
    tasks = [Task(str(memory), memory in done, memory in begun and memory not in done) for memory in memories]
    return TasksTwin(name, people, tasks, sum(task.done for task in tasks))


def task_twin(tables: Tables, memory: Memory, annotator: str) -> TaskTwin:
    """What a person sees of one memory, and what they have marked."""
    study, name = tables.study, drafts.reader(tables.study, annotator)
    checked(study, memory)
    said = next((one for one in read(study, memory) if one.annotator == name), None)
    steps = drafts.steps(study, name, memory)
    written = [DraftPattern(one.kind, one.description, list(one.covers)) for one in said.patterns] if said else []
    # Whichever is newer: what was done, or a step after it.
    newest = steps[-1] if steps and (said is None or steps[-1].made > said.made) else None
    return TaskTwin(
        memory=str(memory),
        triggers=[shown(one) for one in first_triggers(tables, [memory], count=TRIGGERS)[memory]],
        patterns=newest.patterns if newest else written,
        none=newest.none if newest else said is not None and not said.patterns,
        done=said is not None,
        steps=steps,
        least=LEAST,
        most=MOST,
        kinds=list(KINDS),
    )


def figure_twin(tables: Tables, annotator: str, summary: dict[str, Any]) -> FigureTwin:
    """Figure 2: the machine's as the report has it, a person's as it is now."""
    from ffscope.report.drawn_figure import draw

    entry = beside(tables.study, summary.get("patterns", {}), drafts.reader(tables.study, annotator))
    if entry is None:
        return FigureTwin(None)
    drawn = draw("patterns", {"patterns": entry})
    return FigureTwin(Drawing(drawn.name, drawn.title, "", drawn.spec, drawn.number))
