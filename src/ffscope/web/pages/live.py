"""Answers of the loaded model for other pages: its state, a memory's coefficients in any text, memories with similar values."""

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
    MAX_TEXT,
    MODEL_ERRORS,
    Layer,
    Number,
    Text,
    Ticket,
    ask_model,
    queue,
    response_docs,
    served_study,
)
from ffscope.web.responses import Json

router = APIRouter(tags=["model"])
_MAX_SENTENCES = 100


@dataclass(frozen=True)
class LiveResponse:
    """The model's state (none, loading, ready or failed), its queue, and the limits of questions."""

    state: str
    why: str | None
    waiting: int
    ahead: int | None
    model: str | None
    device: str | None
    limits: dict[str, int]


@dataclass(frozen=True)
class CoefficientsResponse:
    """A memory's coefficients at the tokens of a text, or of sentences by number, and its maximum in the study."""

    maximum: float | None
    tokens: list[str] | None = None
    coefficients: list[float] | None = None
    sentences: dict[int, list[float]] | None = None


@dataclass(frozen=True)
class SimilarResponse:
    """The memories with the most similar values, by cosine."""

    similar: list[Similar]


@router.get("/live.json", responses=response_docs(LiveResponse))
def live(request: Request, ticket: Ticket = "") -> Json:
    """The model's state, and how many questions are ahead of the ticket's."""
    status = queue(request).status(ticket)
    loaded = queue(request).about
    limits = {"characters": MAX_TEXT, "sentences": _MAX_SENTENCES}
    limits |= {} if loaded is None else {"tokens": loaded.tokens, "new_tokens": loaded.new_tokens}
    return Json(
        LiveResponse(
            state=status.state,
            why=status.why and served_study(request).without_paths(status.why),
            waiting=status.waiting,
            ahead=status.ahead,
            model=loaded and public_name(loaded.model, hub=True),
            device=loaded and loaded.device,
            limits=limits,
        )
    )


@router.get(
    "/L{layer:number}/{number:number}/coefficients.json",
    responses=response_docs(CoefficientsResponse, also=MODEL_ERRORS),
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
    tables = await run_in_threadpool(lambda: served_study(request).tables)
    memory = checked(tables.study, Memory(layer, number))
    maximum = await run_in_threadpool(maximum_of, tables, memory)
    if bool(text) == bool(sentences):
        raise InputError("Give either text or sentences, not both.")
    if text:
        answer = await ask_model(request, ticket, lambda live, stop: live.text_coefficients(memory, text, stop=stop))
        return Json(CoefficientsResponse(maximum, answer.tokens, answer.coefficients))
    count = tables.study.manifest["corpus"]["sentences"]
    tokens = await run_in_threadpool(tokens_of, tables, _parse_sentences(sentences, count))
    batch = list(tokens.values())
    rows = await ask_model(request, ticket, lambda live, stop: live.coefficients(memory, batch, stop=stop))
    return Json(CoefficientsResponse(maximum, sentences=dict(zip(tokens, rows, strict=True))))


def _parse_sentences(sentences: str, count: int) -> list[int]:
    if "-" in sentences:  # a range could name millions
        raise InputError("List sentences one by one, such as 12,17.")
    try:
        numbers = parse_numbers(sentences, count, "sentences")
    except MemoryNameError as error:
        raise InputError(
            f"Sentences must be numbers from 0 to {count - 1}, such as 12,17; found {sentences[:60]!r}."
        ) from error
    if len(numbers) > _MAX_SENTENCES:
        raise InputError(f"At most {_MAX_SENTENCES} sentences can be requested at once; found {len(numbers)}.")
    return numbers


@router.get(
    "/L{layer:number}/{number:number}/similar.json", responses=response_docs(SimilarResponse, also=MODEL_ERRORS)
)
async def similar(request: Request, layer: Layer, number: Number, ticket: Ticket = "") -> Json:
    """The memories with the most similar values, by cosine."""
    tables = await run_in_threadpool(lambda: served_study(request).tables)
    memory = checked(tables.study, Memory(layer, number))
    return Json(SimilarResponse(await ask_model(request, ticket, lambda live, stop: live.similar(memory, stop=stop))))
