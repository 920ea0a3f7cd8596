"""Parameters, dependencies and response descriptions shared by the routes."""

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
    """A number in a path, with at most nine digits."""

    regex = "[0-9]{1,9}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("number", _Digits())
_MAX_NUMBER = 10**9 - 1  # nine digits, as in a memory's name


@dataclass(frozen=True)
class ErrorResponse:
    """The reason for an error, as a sentence."""

    error: str


Layer = Annotated[int, Path(ge=0, le=_MAX_NUMBER, description="A layer, from 0.")]
Number = Annotated[int, Path(ge=0, le=_MAX_NUMBER, description="A memory's index in its layer, from 0.")]
Annotator = Annotated[str, Query(max_length=200, description="The annotator's name.")]
MAX_TEXT = 8000  # characters
MODEL_ERRORS = (499, 503)
Text = Annotated[str, Query(max_length=MAX_TEXT)]
Ticket = Annotated[
    str,
    Query(
        max_length=64,
        description="Identifies the question, so that /live.json can give its place in the queue.",
    ),
]


def served_study(request: Request) -> OpenStudy:
    """The study being served."""
    return request.app.state.study


def queue(request: Request) -> ModelQueue:
    """The queue of questions to the model."""
    return request.app.state.queue


def html_page(request: Request, kind: str) -> Response:
    """The HTML of a page, with the facts shared by all pages; the browser fetches the page's JSON and draws it."""
    about = served_study(request).about(model=queue(request).has_model, why=queue(request).status().why)
    about["parameters"] = page_parameters(request.scope["route"].endpoint)
    return page(kind, about, page_token=request.app.state.rules.page_token)


async def ask_model(request: Request, ticket: str, question: Any) -> Any:
    """The live model's answer; the question is cancelled if the client disconnects."""
    return await queue(request).ask(question, ticket=ticket, is_disconnected=request.is_disconnected)


def response_docs(model: Any, *, also: tuple[int, ...] = ()) -> dict[int | str, dict[str, Any]]:
    """The responses of a route, for the OpenAPI description: its JSON, and the errors it may give."""
    errors = {400: "Invalid request.", 404: "Not in this study.", 409: "Not computed yet."}
    errors |= {422: "Invalid parameter."} | dict.fromkeys(also, "Refused.")
    described: dict[int | str, dict[str, Any]] = {200: {"model": model}}
    return described | {status: {"model": ErrorResponse, "description": why} for status, why in sorted(errors.items())}
