"""The annotation page: the memories to annotate, and saving what a person marks."""

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
from ffscope.web.dependencies import Annotator, Layer, Number, html_page, response_docs, served_study
from ffscope.web.drawing import Drawing
from ffscope.web.parameters import takes
from ffscope.web.responses import Json
from ffscope.web.rows import Row, prefix_row

router = APIRouter(prefix="/annotate", tags=["annotate"])
_WRITE_ERRORS = (403, 411, 413)


@dataclass(frozen=True)
class Task:
    """A memory to annotate: whether it is done, and whether there is a draft."""

    memory: str
    done: bool
    draft: bool


@dataclass(frozen=True)
class TasksResponse:
    """The memories that everyone annotates, one person's progress, and the number of memories each person has done."""

    annotator: str
    people: dict[str, int]
    memories: list[Task]
    done: int


@dataclass(frozen=True)
class TaskResponse:
    """One memory to annotate: its top triggers, the current marks and the steps before; no patterns found by programs."""

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
    """Figure 2 from automatic patterns and from a person's annotations; null without either."""

    figure: Drawing | None


class PatternBody(BaseModel):
    """A pattern, possibly incomplete."""

    kind: Annotated[str | None, Field(max_length=20)] = None
    description: Annotated[str, Field(max_length=1000)] = ""
    covers: Annotated[list[Annotated[int, Field(ge=1, le=10**6)]], Field(max_length=100)] = []


class AnnotationBody(BaseModel):
    """A person's annotation of a memory. `none`: they found no pattern."""

    annotator: Annotated[str, Field(max_length=200)]
    patterns: Annotated[list[PatternBody], Field(max_length=20)] = []
    none: bool = False


@dataclass(frozen=True)
class Saved:
    """The time at which it was saved."""

    made: str


def tasks_response(tables: Tables, annotator: str, memories: list[Memory]) -> TasksResponse:
    """The memories to annotate with one person's progress; without a name, none are done."""
    study = tables.study
    everyone = done_by(study)
    people = {name: len(annotated) for name, annotated in everyone.items()}
    if not annotator.strip():
        return TasksResponse("", people, [Task(str(memory), False, False) for memory in memories], 0)
    name = drafts.checked_reader(study, annotator)
    done, begun = everyone.get(name, set()), drafts_begun(study, name)
    tasks = [Task(str(memory), memory in done, memory in begun and memory not in done) for memory in memories]
    return TasksResponse(name, people, tasks, sum(task.done for task in tasks))


def task_response(tables: Tables, memory: Memory, annotator: str) -> TaskResponse:
    """The triggers of one memory, and what a person has marked in them."""
    study, name = tables.study, drafts.checked_reader(tables.study, annotator)
    checked(study, memory)
    annotation = next((entry for entry in read(study, memory) if entry.annotator == name), None)
    steps = drafts.steps(study, name, memory)
    patterns = annotation.patterns if annotation else ()
    saved = [DraftPattern(pattern.kind, pattern.description, list(pattern.covers)) for pattern in patterns]
    # A draft saved after the annotation takes its place.
    newest = steps[-1] if steps and (annotation is None or steps[-1].made > annotation.time) else None
    return TaskResponse(
        memory=str(memory),
        triggers=[prefix_row(trigger) for trigger in first_triggers(tables, [memory], count=TRIGGERS)[memory]],
        patterns=newest.patterns if newest else saved,
        none=newest.none if newest else annotation is not None and not annotation.patterns,
        done=annotation is not None,
        steps=steps,
        least=LEAST,
        most=MOST,
        kinds=list(KINDS),
    )


def figure_response(tables: Tables, annotator: str, summary: dict[str, Any]) -> FigureResponse:
    """Figure 2: the automatic patterns as in the report, and the person's annotations as they are now."""
    from ffscope.report.drawn_figure import draw as draw_figure

    entry = with_annotator(tables.study, summary.get("patterns", {}), drafts.checked_reader(tables.study, annotator))
    if entry is None:
        return FigureResponse(None)
    drawn = draw_figure("patterns", {"patterns": entry})
    return FigureResponse(Drawing(drawn.name, drawn.title, "", drawn.spec, drawn.number))


@router.get(".json", responses=response_docs(TasksResponse))
def tasks(
    request: Request,
    annotator: Annotator = "",
    sample: Annotated[int, Query(ge=1, le=1000, description="Number of memories per layer.")] = 10,
    seed: Annotated[int | None, Query(ge=0, le=2**31)] = None,
) -> Json:
    """The memories to annotate, and one person's progress."""
    study = served_study(request)
    memories = study.cached(f"sample {sample} {seed}", lambda tables: draw(tables.study, sample, seed=seed))
    return Json(tasks_response(study.tables, annotator, memories))


@router.get("/figure.json", responses=response_docs(FigureResponse))
def figure(request: Request, annotator: Annotator) -> Json:
    """Figure 2 from automatic patterns and from a person's annotations."""
    return Json(figure_response(served_study(request).tables, annotator, served_study(request).summary()))


@router.get("/L{layer:number}/{number:number}.json", responses=response_docs(TaskResponse))
def task(request: Request, layer: Layer, number: Number, annotator: Annotator) -> Json:
    """One memory to annotate, and what a person has marked so far."""
    return Json(task_response(served_study(request).tables, Memory(layer, number), annotator))


@router.post("/L{layer:number}/{number:number}/draft.json", responses=response_docs(Saved, also=_WRITE_ERRORS))
def draft(request: Request, layer: Layer, number: Number, annotation: AnnotationBody) -> Json:
    """Save a draft, which may be incomplete."""
    patterns = [DraftPattern(pattern.kind, pattern.description, pattern.covers) for pattern in annotation.patterns]
    study = served_study(request).tables.study
    saved = drafts.save(study, annotation.annotator, Memory(layer, number), patterns, none=annotation.none)
    return Json(Saved(saved.made))


@router.post("/L{layer:number}/{number:number}.json", responses=response_docs(Saved, also=_WRITE_ERRORS))
def done(request: Request, layer: Layer, number: Number, annotation: AnnotationBody) -> Json:
    """Save a finished annotation; it must be complete."""
    if annotation.none == bool(annotation.patterns):
        raise InputError("Describe a pattern, or choose “No pattern”: exactly one of the two.")
    patterns = [
        Pattern(pattern.kind or "", pattern.description, tuple(pattern.covers)) for pattern in annotation.patterns
    ]
    study = served_study(request).tables.study
    return Json(Saved(write(study, annotation.annotator, Memory(layer, number), patterns).time))


@router.get("", include_in_schema=False)
@takes(tasks, own=("memory",))
def html(request: Request) -> Response:
    """The annotation page, which follows the paper's protocol."""
    return html_page(request, "annotate")
