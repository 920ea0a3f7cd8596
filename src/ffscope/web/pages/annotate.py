"""The page on which people annotate: which memories to look at, what was marked, and its saving."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field
from starlette.responses import Response

from ffscope.annotating import drafts
from ffscope.annotating.drafts import Draft, DraftPattern
from ffscope.annotating.records import write
from ffscope.annotating.sheets import draw
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import KINDS, LEAST, MOST, TRIGGERS, Pattern
from ffscope.queries.annotations import done_by, drafts_begun, read
from ffscope.queries.prefixes import first_triggers
from ffscope.queries.tables import Tables, checked
from ffscope.report.patterns import with_annotator
from ffscope.web.dependencies import Annotator, Layer, Number, answers, html_page, studied
from ffscope.web.drawing import Drawing
from ffscope.web.parameters import takes
from ffscope.web.responses import Json
from ffscope.web.rows import Row, shown

router = APIRouter(prefix="/annotate", tags=["annotate"])
_REFUSALS = (403, 411, 413)


@dataclass(frozen=True)
class Task:
    """A memory to annotate: whether it is done, and whether it is begun."""

    memory: str
    done: bool
    draft: bool


@dataclass(frozen=True)
class TasksResponse:
    """The memories that everyone annotates, how far a person is, and who else is at it."""

    annotator: str
    people: dict[str, int]
    memories: list[Task]
    done: int


@dataclass(frozen=True)
class TaskResponse:
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
class FigureResponse:
    """Figure 2 as the machine and a person have it; null where neither has looked."""

    figure: Drawing | None


class PatternBody(BaseModel):
    """What some prefixes share, maybe not whole yet."""

    kind: Annotated[str | None, Field(max_length=20)] = None
    description: Annotated[str, Field(max_length=1000)] = ""
    covers: Annotated[list[Annotated[int, Field(ge=1, le=10**6)]], Field(max_length=100)] = []


class AnnotationBody(BaseModel):
    """What a person says of a memory. `none`: they looked and saw no pattern."""

    annotator: Annotated[str, Field(max_length=200)]
    patterns: Annotated[list[PatternBody], Field(max_length=20)] = []
    none: bool = False


@dataclass(frozen=True)
class Saved:
    """When it was written down."""

    made: str


def tasks_response(tables: Tables, annotator: str, memories: list[Memory]) -> TasksResponse:
    """The memories that a person is asked to annotate; without a name nothing is done."""
    study = tables.study
    everyone = done_by(study)
    people = {name: len(theirs) for name, theirs in everyone.items()}
    if not annotator.strip():
        return TasksResponse("", people, [Task(str(memory), False, False) for memory in memories], 0)
    name = drafts.reader(study, annotator)
    done, begun = everyone.get(name, set()), drafts_begun(study, name)
    tasks = [Task(str(memory), memory in done, memory in begun and memory not in done) for memory in memories]
    return TasksResponse(name, people, tasks, sum(task.done for task in tasks))


def task_response(tables: Tables, memory: Memory, annotator: str) -> TaskResponse:
    """What a person sees of one memory, and what they have marked."""
    study, name = tables.study, drafts.reader(tables.study, annotator)
    checked(study, memory)
    said = next((one for one in read(study, memory) if one.annotator == name), None)
    steps = drafts.steps(study, name, memory)
    written = [DraftPattern(one.kind, one.description, list(one.covers)) for one in said.patterns] if said else []
    # Whichever is newer: what was done, or a step after it.
    newest = steps[-1] if steps and (said is None or steps[-1].made > said.made) else None
    return TaskResponse(
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


def figure_response(tables: Tables, annotator: str, summary: dict[str, Any]) -> FigureResponse:
    """Figure 2: the machine's as the report has it, a person's as it is now."""
    from ffscope.report.drawn_figure import draw as draw_figure

    entry = with_annotator(tables.study, summary.get("patterns", {}), drafts.reader(tables.study, annotator))
    if entry is None:
        return FigureResponse(None)
    drawn = draw_figure("patterns", {"patterns": entry})
    return FigureResponse(Drawing(drawn.name, drawn.title, "", drawn.spec, drawn.number))


@router.get(".json", responses=answers(TasksResponse))
def tasks(
    request: Request,
    annotator: Annotator = "",
    sample: Annotated[int, Query(ge=1, le=1000, description="Memories of every layer.")] = 10,
    seed: Annotated[int | None, Query(ge=0, le=2**31)] = None,
) -> Json:
    """The memories to annotate, and how far a person is."""
    drawn = studied(request).kept(f"{sample} by {seed}", lambda tables: draw(tables.study, sample, seed=seed))
    return Json(tasks_response(studied(request).tables, annotator, drawn))


@router.get("/figure.json", responses=answers(FigureResponse))
def figure(request: Request, annotator: Annotator) -> Json:
    """Figure 2 as the machine and a person have it."""
    return Json(figure_response(studied(request).tables, annotator, studied(request).summary()))


@router.get("/L{layer:number}/{number:number}.json", responses=answers(TaskResponse))
def task(request: Request, layer: Layer, number: Number, annotator: Annotator) -> Json:
    """One memory to annotate, and what a person has marked so far."""
    return Json(task_response(studied(request).tables, Memory(layer, number), annotator))


@router.post("/L{layer:number}/{number:number}/draft.json", responses=answers(Saved, also=_REFUSALS))
def draft(request: Request, layer: Layer, number: Number, said: AnnotationBody) -> Json:
    """Keep a step that need not be whole."""
    halves = [DraftPattern(one.kind, one.description, one.covers) for one in said.patterns]
    study = studied(request).tables.study
    return Json(Saved(drafts.save(study, said.annotator, Memory(layer, number), halves, none=said.none).made))


@router.post("/L{layer:number}/{number:number}.json", responses=answers(Saved, also=_REFUSALS))
def done(request: Request, layer: Layer, number: Number, said: AnnotationBody) -> Json:
    """Write down what a person says of a memory; it is held to the rules."""
    if said.none == bool(said.patterns):
        raise InputError("Describe a pattern, or say that there is none: one of the two, and not both.")
    patterns = [Pattern(one.kind or "", one.description, tuple(one.covers)) for one in said.patterns]
    return Json(Saved(write(studied(request).tables.study, said.annotator, Memory(layer, number), patterns).made))


@router.get("", include_in_schema=False)
@takes(tasks, own=("memory",))
def html(request: Request) -> Response:
    """The paper's protocol."""
    return html_page(request, "annotate")
