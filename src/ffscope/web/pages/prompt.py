"""The prompt page: the loaded model's predictions for a text, layer by layer, with interventions."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from pydantic import Field
from starlette.responses import Response

from ffscope.live.interventions import Interventions
from ffscope.live.responses import Generated, PromptReading, RankedMemories, Why
from ffscope.models.lenses import lens_names
from ffscope.web.dependencies import MODEL_ERRORS, Text, Ticket, ask_model, html_page, response_docs
from ffscope.web.parameters import takes
from ffscope.web.responses import Json

router = APIRouter(tags=["model"])
Terms = list[Annotated[str, Field(max_length=5000)]]  # repeated parameters are joined
_REPEATABLE: dict[str, Any] = {"default_factory": list, "max_length": 200}
Names = Annotated[
    Terms, Query(**_REPEATABLE, description="Memories and whole layers whose coefficients are set to 0: L3.17,L4")
]
Numbers = Annotated[
    Terms, Query(**_REPEATABLE, description="Memories and whole layers, each with its number: L3.17:2,L4:-1")
]
Positions = Annotated[
    Terms,
    Query(
        **_REPEATABLE,
        description="Positions of the interventions; by default every token; negative counts from the end: 0,3,-1",
    ),
]
Position = Annotated[
    int, Query(ge=-(10**6), le=10**6, description="A token's position, BOS included; negative counts from the end.")
]
Lens: Any = Literal[("", *lens_names())]  # "": the study's lens


def parse_interventions(zero: Names, scale: Numbers, set: Numbers, positions: Positions) -> Interventions:
    """The interventions in a URL, with the parameters of `MemoryModel.edit`."""
    return Interventions.parse(*(",".join(filter(str.strip, terms)) for terms in (zero, scale, set, positions)))


InterventionParameters = Annotated[Interventions, Depends(parse_interventions)]


@router.get("/prompt.json", responses=response_docs(PromptReading, also=MODEL_ERRORS))
async def prompt(
    request: Request,
    text: Text,
    interventions: InterventionParameters,
    position: Position = -1,
    of: Literal["output", "residual", "none"] = "output",
    lens: Lens = "",
    memories: Annotated[int, Query(ge=1, le=50)] = 5,
    ticket: Ticket = "",
) -> Json:
    """What every layer predicts at every token of a text, with and without interventions."""
    options: dict[str, Any] = {"position": position, "of": of, "lens": lens or None, "memories": memories}
    options["interventions"] = interventions
    return Json(await ask_model(request, ticket, lambda live, stop: live.prompt(text, **options, stop=stop)))


@router.get("/prompt/memories.json", responses=response_docs(RankedMemories, also=MODEL_ERRORS))
async def memories(
    request: Request,
    text: Text,
    interventions: InterventionParameters,
    position: Position = -1,
    target: Annotated[
        str, Query(max_length=200, description="The token whose logit is explained; by default the predicted one.")
    ] = "",
    by: Annotated[
        Literal["", "logit", "size", "effect"],
        Query(
            description="Rank by the push on the token's logit (the default), by the size of what is written, or by the "
            "estimated effect on the token's log-probability."
        ),
    ] = "",
    count: Annotated[int, Query(ge=1, le=200)] = 20,
    ticket: Ticket = "",
) -> Json:
    """The memories of all layers that contribute or matter most to a token's prediction, or that write most to the residual."""
    options: dict[str, Any] = {"position": position, "target": target or None, "by": by or None, "count": count}
    options["interventions"] = interventions
    return Json(await ask_model(request, ticket, lambda live, stop: live.memories(text, **options, stop=stop)))


@router.get("/prompt/why.json", responses=response_docs(Why, also=MODEL_ERRORS))
async def why(
    request: Request,
    text: Text,
    a: Annotated[
        str, Query(min_length=1, max_length=200, description="A token: its spelling (␣was), its text, or #id.")
    ],
    b: Annotated[str, Query(min_length=1, max_length=200, description="Another token.")],
    interventions: InterventionParameters,
    position: Position = -1,
    count: Annotated[int, Query(ge=1, le=200)] = 20,
    ticket: Ticket = "",
) -> Json:
    """Why token a rather than b: the memories that contribute most to the difference of their logits."""
    options: dict[str, Any] = {"a": a, "b": b, "position": position, "count": count}
    options["interventions"] = interventions
    return Json(await ask_model(request, ticket, lambda live, stop: live.why(text, **options, stop=stop)))


@router.get("/prompt/text.json", responses=response_docs(Generated, also=MODEL_ERRORS))
async def text(
    request: Request,
    text: Text,
    interventions: InterventionParameters,
    new_tokens: Annotated[int, Query(ge=1, le=1000)] = 20,
    ticket: Ticket = "",
) -> Json:
    """Text generated greedily, with and without interventions."""
    options: dict[str, Any] = {"new_tokens": new_tokens, "interventions": interventions}
    return Json(await ask_model(request, ticket, lambda live, stop: live.generate(text, **options, stop=stop)))


@router.get("/prompt", include_in_schema=False)
@takes(prompt, memories, why, text, without=("ticket", "memories", "count", "target"), own=("colour",))
def html(request: Request) -> Response:
    """The prompt page."""
    return html_page(request, "prompt")
