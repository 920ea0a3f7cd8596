"""The loaded model's part of other pages: how it is, a memory's coefficients in any text, values in the same direction."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.concurrency import run_in_threadpool

from ffscope.errors import InputError, MemoryNameError
from ffscope.live.responses import Similar
from ffscope.memory_name import Memory, parse_numbers
from ffscope.queries.context import tokens_of
from ffscope.queries.memory import maximum_of
from ffscope.queries.tables import checked
from ffscope.study.public import public_name
from ffscope.web.dependencies import (
    LONGEST_TEXT,
    MODEL_REFUSALS,
    Layer,
    Number,
    Text,
    Ticket,
    answers,
    ask_model,
    queue,
    studied,
)
from ffscope.web.responses import Json

router = APIRouter(tags=["model"])
_SENTENCES = 100


@dataclass(frozen=True)
class LiveResponse:
    """How the model is: none, loading, ready or failed; who waits; and what may be asked of it."""

    state: str
    why: str | None
    waiting: int
    ahead: int | None
    model: str | None
    device: str | None
    limits: dict[str, int]


@dataclass(frozen=True)
class CoefficientsResponse:
    """A memory's coefficients at the tokens of a text, or of sentences by their number; beside its highest in the study."""

    maximum: float | None
    tokens: list[str] | None = None
    coefficients: list[float] | None = None
    sentences: dict[int, list[float]] | None = None


@dataclass(frozen=True)
class SimilarResponse:
    """The memories whose values point most nearly the same way."""

    similar: list[Similar]


@router.get("/live.json", responses=answers(LiveResponse))
def live(request: Request, ticket: Ticket = "") -> Json:
    """How the model is, and how many questions are in front of a ticket's."""
    place = queue(request).place(ticket)
    loaded = queue(request).about
    limits = {"characters": LONGEST_TEXT, "sentences": _SENTENCES}
    limits |= {} if loaded is None else {"tokens": loaded.tokens, "new_tokens": loaded.new_tokens}
    return Json(
        LiveResponse(
            state=place.state,
            why=place.why and studied(request).without_paths(place.why),
            waiting=place.waiting,
            ahead=place.ahead,
            model=loaded and public_name(loaded.model, hub=True),
            device=loaded and loaded.device,
            limits=limits,
        )
    )


@router.get(
    "/L{layer:number}/{number:number}/coefficients.json", responses=answers(CoefficientsResponse, also=MODEL_REFUSALS)
)
async def coefficients(
    request: Request,
    layer: Layer,
    number: Number,
    text: Text = "",
    sentences: Annotated[str, Query(max_length=2000, description="Sentences of the study: 12,17")] = "",
    ticket: Ticket = "",
) -> Json:
    """A memory's coefficient at every token of a text, or of sentences of the study."""
    tables = await run_in_threadpool(lambda: studied(request).tables)
    memory = checked(tables.study, Memory(layer, number))
    maximum = await run_in_threadpool(maximum_of, tables, memory)
    if bool(text) == bool(sentences):
        raise InputError("Ask for a text or for sentences: one of the two, and not both.")
    if text:
        said = await ask_model(request, ticket, lambda live, stop: live.text_coefficients(memory, text, stop=stop))
        return Json(CoefficientsResponse(maximum, said.tokens, said.coefficients))
    count = tables.study.manifest["corpus"]["sentences"]
    tokens = await run_in_threadpool(tokens_of, tables, _numbered(sentences, count))
    asked = list(tokens.values())
    numbers = await ask_model(request, ticket, lambda live, stop: live.coefficients(memory, asked, stop=stop))
    return Json(CoefficientsResponse(maximum, sentences=dict(zip(tokens, numbers, strict=True))))


def _numbered(sentences: str, count: int) -> list[int]:
    if "-" in sentences:  # a range could name millions
        raise InputError("Name sentences one by one, such as 12,17.")
    try:
        numbers = parse_numbers(sentences, count, "sentences")
    except MemoryNameError as error:
        raise InputError(
            f"Sentences are numbers from 0 to {count - 1}, such as 12,17; found {sentences[:60]!r}."
        ) from error
    if len(numbers) > _SENTENCES:
        raise InputError(f"At most {_SENTENCES} sentences are read at once; {len(numbers)} were asked for.")
    return numbers


@router.get("/L{layer:number}/{number:number}/similar.json", responses=answers(SimilarResponse, also=MODEL_REFUSALS))
async def similar(request: Request, layer: Layer, number: Number, ticket: Ticket = "") -> Json:
    """The memories whose values point most nearly the same way."""
    tables = await run_in_threadpool(lambda: studied(request).tables)
    memory = checked(tables.study, Memory(layer, number))
    return Json(SimilarResponse(await ask_model(request, ticket, lambda live, stop: live.similar(memory, stop=stop))))
