"""Questions to the loaded model: prompts, interventions, the coefficients of any text."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.concurrency import run_in_threadpool

from ffscope.errors import InputError, MemoryNameError
from ffscope.live.interventions import Interventions
from ffscope.live.responses import Generated, PromptReading, RankedMemories, Similar, Why
from ffscope.memory_name import Memory, parse_layers, parse_numbers
from ffscope.queries.context import tokens_of
from ffscope.queries.memory import maximum_of
from ffscope.queries.tables import checked
from ffscope.study.public import public_name
from ffscope.web.responses import Json
from ffscope.web.routes.asking import Layer, Number, Ticket, answers, ask_model, queue, studied
from ffscope.web.twins.search import TokenTwin, token_twin

router = APIRouter(tags=["model"])
LONGEST_TEXT = 8000  # characters
_REFUSALS = (499, 503)
_SENTENCES = 100
Text = Annotated[str, Query(max_length=LONGEST_TEXT)]
Terms = list[Annotated[str, Field(max_length=5000)]]  # repeated ones add up
_SEVERAL: dict[str, Any] = {"default_factory": list, "max_length": 200}
Names = Annotated[Terms, Query(**_SEVERAL, description="Memories and whole layers that become 0: L3.17,L4")]
Numbers = Annotated[Terms, Query(**_SEVERAL, description="Memories and whole layers with their numbers: L3.17:2,L4:-1")]
Positions = Annotated[
    Terms,
    Query(
        **_SEVERAL, description="Where the interventions hold; all tokens, or some, from the end when negative: 0,3,-1"
    ),
]
Position = Annotated[
    int, Query(ge=-(10**6), le=10**6, description="A token, BOS included; from the end when negative.")
]


def intervening(zero: Names, scale: Numbers, set: Numbers, positions: Positions) -> Interventions:
    """What a link does to memories, in the words of `MemoryModel.edit`."""
    return Interventions.parse(*(",".join(filter(str.strip, terms)) for terms in (zero, scale, set, positions)))


Intervening = Annotated[Interventions, Depends(intervening)]


@dataclass(frozen=True)
class LiveTwin:
    """How the model is: none, loading, ready or failed; who waits; and what may be asked of it."""

    state: str
    why: str | None
    waiting: int
    ahead: int | None
    model: str | None
    device: str | None
    limits: dict[str, int]


@dataclass(frozen=True)
class CoefficientsTwin:
    """A memory's coefficients at the tokens of a text, or of sentences by their number; beside its highest in the study."""

    maximum: float | None
    tokens: list[str] | None = None
    coefficients: list[float] | None = None
    sentences: dict[int, list[float]] | None = None


@dataclass(frozen=True)
class SimilarTwin:
    """The memories whose values point most nearly the same way."""

    similar: list[Similar]


@router.get("/live.json", responses=answers(LiveTwin))
def live(request: Request, ticket: Ticket = "") -> Json:
    """How the model is, and how many questions are in front of a ticket's."""
    place = queue(request).place(ticket)
    loaded = queue(request).about
    limits = {"characters": LONGEST_TEXT, "sentences": _SENTENCES}
    limits |= {} if loaded is None else {"tokens": loaded.tokens, "new_tokens": loaded.new_tokens}
    names = {"model": loaded and public_name(loaded.model, hub=True), "device": loaded and loaded.device}
    why = place.why and studied(request).without_paths(place.why)
    return Json(LiveTwin(place.state, why, place.waiting, place.ahead, **names, limits=limits))


@router.get("/L{layer:number}/{number:number}/coefficients.json", responses=answers(CoefficientsTwin, also=_REFUSALS))
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
        return Json(CoefficientsTwin(maximum, said.tokens, said.coefficients))
    count = tables.study.manifest["corpus"]["sentences"]
    tokens = await run_in_threadpool(tokens_of, tables, _numbered(sentences, count))
    asked = list(tokens.values())
    numbers = await ask_model(request, ticket, lambda live, stop: live.coefficients(memory, asked, stop=stop))
    return Json(CoefficientsTwin(maximum, sentences=dict(zip(tokens, numbers, strict=True))))


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


@router.get("/L{layer:number}/{number:number}/similar.json", responses=answers(SimilarTwin, also=_REFUSALS))
async def similar(request: Request, layer: Layer, number: Number, ticket: Ticket = "") -> Json:
    """The memories whose values point most nearly the same way."""
    tables = await run_in_threadpool(lambda: studied(request).tables)
    memory = checked(tables.study, Memory(layer, number))
    return Json(SimilarTwin(await ask_model(request, ticket, lambda live, stop: live.similar(memory, stop=stop))))


@router.get("/search/token.json", responses=answers(TokenTwin, also=_REFUSALS))
async def promoters(
    request: Request,
    token: Annotated[str, Query(min_length=1, max_length=200, description="A token as pages spell it, or #id.")],
    layers: Annotated[str, Query(max_length=1000, description="Such as 0,3-5; all by default.")] = "",
    count: Annotated[int, Query(ge=1, le=1000)] = 100,
    ticket: Ticket = "",
) -> Json:
    """All memories ranked by how far their values raise a token's logit above the mean of all tokens."""
    tables = await run_in_threadpool(lambda: studied(request).tables)
    chosen = parse_layers(layers, len(tables.study.manifest["model"]["memories"])) if layers else None
    asked: dict[str, Any] = {"layers": chosen, "count": count}
    ranked = await ask_model(request, ticket, lambda live, stop: live.promoters(token, **asked, stop=stop))
    return Json(await run_in_threadpool(token_twin, tables, ranked))


@router.get("/prompt.json", responses=answers(PromptReading, also=_REFUSALS))
async def prompt(
    request: Request,
    text: Text,
    interventions: Intervening,
    position: Position = -1,
    of: Literal["output", "residual", "none"] = "output",
    lens: Literal["", "norm", "raw"] = "",
    memories: Annotated[int, Query(ge=1, le=50)] = 5,
    ticket: Ticket = "",
) -> Json:
    """What every layer predicts at every token of a text, with and without interventions."""
    asked: dict[str, Any] = {"position": position, "of": of, "lens": lens or None, "memories": memories}
    asked["interventions"] = interventions
    return Json(await ask_model(request, ticket, lambda live, stop: live.prompt(text, **asked, stop=stop)))


@router.get("/prompt/memories.json", responses=answers(RankedMemories, also=_REFUSALS))
async def memories(
    request: Request,
    text: Text,
    interventions: Intervening,
    position: Position = -1,
    target: Annotated[
        str, Query(max_length=200, description="Whose logit: a token; the predicted one without it.")
    ] = "",
    by: Literal["", "logit", "size"] = "",
    count: Annotated[int, Query(ge=1, le=200)] = 20,
    ticket: Ticket = "",
) -> Json:
    """The memories of all layers that push a token's logit most, or that write most to the residual."""
    asked: dict[str, Any] = {"position": position, "target": target or None, "by": by or None, "count": count}
    asked["interventions"] = interventions
    return Json(await ask_model(request, ticket, lambda live, stop: live.memories(text, **asked, stop=stop)))


@router.get("/prompt/why.json", responses=answers(Why, also=_REFUSALS))
async def why(
    request: Request,
    text: Text,
    a: Annotated[
        str, Query(min_length=1, max_length=200, description="A token: its spelling (␣was), its text, or #id.")
    ],
    b: Annotated[str, Query(min_length=1, max_length=200, description="Another's.")],
    interventions: Intervening,
    position: Position = -1,
    count: Annotated[int, Query(ge=1, le=200)] = 20,
    ticket: Ticket = "",
) -> Json:
    """Why token a rather than b: the memories that push the difference of their logits."""
    asked: dict[str, Any] = {"a": a, "b": b, "position": position, "count": count}
    asked["interventions"] = interventions
    return Json(await ask_model(request, ticket, lambda live, stop: live.why(text, **asked, stop=stop)))


@router.get("/prompt/text.json", responses=answers(Generated, also=_REFUSALS))
async def text(
    request: Request,
    text: Text,
    interventions: Intervening,
    new_tokens: Annotated[int, Query(ge=1, le=1000)] = 20,
    ticket: Ticket = "",
) -> Json:
    """How the model goes on, with and without interventions; always by the likeliest token."""
    asked: dict[str, Any] = {"new_tokens": new_tokens, "interventions": interventions}
    return Json(await ask_model(request, ticket, lambda live, stop: live.generate(text, **asked, stop=stop)))
