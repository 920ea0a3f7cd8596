"""People's patterns: which memories to look at, what was marked, and its saving."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from ffscope.annotating import drafts
from ffscope.annotating.drafts import DraftPattern
from ffscope.annotating.records import write
from ffscope.annotating.sheets import draw
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.patterns.pattern import Pattern
from ffscope.web.responses import Json
from ffscope.web.routes.asking import Annotator, Layer, Number, answers, studied
from ffscope.web.twins.annotate import FigureTwin, TasksTwin, TaskTwin, figure_twin, task_twin, tasks_twin

router = APIRouter(prefix="/annotate", tags=["annotate"])
_REFUSALS = (403, 411, 413)


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


@router.get(".json", responses=answers(TasksTwin))
def tasks(
    request: Request,
    annotator: Annotator = "",
    sample: Annotated[int, Query(ge=1, le=1000, description="Memories of every layer.")] = 10,
    seed: Annotated[int | None, Query(ge=0, le=2**31)] = None,
) -> Json:
    """The memories to annotate, and how far a person is."""
    drawn = studied(request).kept(f"{sample} by {seed}", lambda tables: draw(tables.study, sample, seed=seed))
    return Json(tasks_twin(studied(request).tables, annotator, drawn))


@router.get("/figure.json", responses=answers(FigureTwin))
def figure(request: Request, annotator: Annotator) -> Json:
    """Figure 2 as the machine and a person have it."""
    return Json(figure_twin(studied(request).tables, annotator, studied(request).summary()))


@router.get("/L{layer:number}/{number:number}.json", responses=answers(TaskTwin))
def task(request: Request, layer: Layer, number: Number, annotator: Annotator) -> Json:
    """One memory to annotate, and what a person has marked so far."""
    return Json(task_twin(studied(request).tables, Memory(layer, number), annotator))


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
