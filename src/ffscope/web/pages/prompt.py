"""The page of a prompt: a text, layer by layer, and what the loaded model says of it."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import Response

from ffscope.live.interventions import Interventions
from ffscope.live.responses import Generated, PromptReading, RankedMemories, Why
from ffscope.models.lenses import lens_names
from ffscope.web.dependencies import MODEL_REFUSALS, Text, Ticket, answers, ask_model, html_page
from ffscope.web.parameters import takes
from ffscope.web.responses import Json

router = APIRouter(tags=["model"])
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
Lens: Any = Literal[("", *lens_names())]  # "" is the study's own


def intervening(zero: Names, scale: Numbers, set: Numbers, positions: Positions) -> Interventions:
    """What a link does to memories, in the words of `MemoryModel.edit`."""
    return Interventions.parse(*(",".join(filter(str.strip, terms)) for terms in (zero, scale, set, positions)))


Intervening = Annotated[Interventions, Depends(intervening)]


@router.get("/prompt.json", responses=answers(PromptReading, also=MODEL_REFUSALS))
async def prompt(
    request: Request,
    text: Text,
    interventions: Intervening,
    position: Position = -1,
    of: Literal["output", "residual", "none"] = "output",
    lens: Lens = "",
    memories: Annotated[int, Query(ge=1, le=50)] = 5,
    ticket: Ticket = "",
) -> Json:
    """What every layer predicts at every token of a text, with and without interventions."""
    asked: dict[str, Any] = {"position": position, "of": of, "lens": lens or None, "memories": memories}
    asked["interventions"] = interventions
    return Json(await ask_model(request, ticket, lambda live, stop: live.prompt(text, **asked, stop=stop)))


@router.get("/prompt/memories.json", responses=answers(RankedMemories, also=MODEL_REFUSALS))
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


@router.get("/prompt/why.json", responses=answers(Why, also=MODEL_REFUSALS))
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


@router.get("/prompt/text.json", responses=answers(Generated, also=MODEL_REFUSALS))
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


@router.get("/prompt", include_in_schema=False)
@takes(prompt, memories, why, text, without=("ticket", "memories", "count", "target"), own=("colour",))
def html(request: Request) -> Response:
    """A text, layer by layer."""
    return html_page(request, "prompt")
