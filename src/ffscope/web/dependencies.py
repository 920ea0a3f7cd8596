"""What the addresses have in common: what they are given, and what they answer."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Path, Query, Request
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import Response

from ffscope.web.model_queue import ModelQueue
from ffscope.web.open_study import OpenStudy
from ffscope.web.parameters import page_parameters
from ffscope.web.responses import page


class _Digits(Convertor):
    """A number in a path, with as many digits as a memory's name may have."""

    regex = "[0-9]{1,9}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("number", _Digits())
_MOST = 10**9 - 1  # as many digits as a memory's name may have


@dataclass(frozen=True)
class Refused:
    """Why something was not answered, in a sentence."""

    error: str


Layer = Annotated[int, Path(ge=0, le=_MOST, description="A layer, from 0.")]
Number = Annotated[int, Path(ge=0, le=_MOST, description="A memory of the layer, from 0.")]
Annotator = Annotated[str, Query(max_length=200, description="Who annotates.")]
LONGEST_TEXT = 8000  # characters
MODEL_REFUSALS = (499, 503)
Text = Annotated[str, Query(max_length=LONGEST_TEXT)]
Ticket = Annotated[str, Query(max_length=64, description="Any word; /live.json tells by it how many are in front.")]


def studied(request: Request) -> OpenStudy:
    """The study that is served."""
    return request.app.state.studied


def queue(request: Request) -> ModelQueue:
    """Where the model is asked."""
    return request.app.state.queue


def html_page(request: Request, kind: str) -> Response:
    """The page that draws its own JSON in the browser; what every page knows is in it."""
    about = studied(request).about(model=queue(request).has_model, why=queue(request).place().why)
    about["parameters"] = page_parameters(request.scope["route"].endpoint)
    return page(kind, about, page_token=request.app.state.rules.page_token)


async def ask_model(request: Request, ticket: str, question: Any) -> Any:
    """The live model's answer, as long as whoever asked is there."""
    return await queue(request).ask(question, ticket=ticket, is_gone=request.is_disconnected)


def answers(model: Any, *, also: tuple[int, ...] = ()) -> dict[int | str, dict[str, Any]]:
    """For the description of an address: what it answers, and with which numbers it refuses."""
    refusals = {400: "Not understood.", 404: "Not in this study.", 409: "Not there yet."}
    refusals |= {422: "Not understood."} | dict.fromkeys(also, "Refused.")
    said: dict[int | str, dict[str, Any]] = {200: {"model": model}}
    return said | {number: {"model": Refused, "description": why} for number, why in sorted(refusals.items())}
