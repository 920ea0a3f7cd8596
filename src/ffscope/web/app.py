"""The explorer's server: one study, optionally its model, access rules and routes."""

import logging
import pkgutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

import ffscope
from ffscope.errors import FfscopeError, MemoryNameError, StudyError
from ffscope.html import vega_bundle
from ffscope.tokens import visible
from ffscope.web import pages
from ffscope.web.dependencies import ErrorResponse
from ffscope.web.guard import App, Guard, Rules, Scope
from ffscope.web.model_queue import CancelledQuestion, ModelQueue, NoModel, OutOfMemory, QueueFull
from ffscope.web.open_study import OpenStudy
from ffscope.web.pages.overview import cached_overview
from ffscope.web.parameters import refuse_other_parameters
from ffscope.web.responses import STATIC, Json, error_page

logger = logging.getLogger(__name__)
# The HTTP status of each error; the first matching class counts.
_STATUS: dict[type[Exception], int] = {
    MemoryNameError: 404,
    StudyError: 409,
    NoModel: 503,
    OutOfMemory: 503,
    QueueFull: 503,
    CancelledQuestion: 499,
    FfscopeError: 400,
}


def make_app(folder: Path, *, rules: Rules, queue: ModelQueue) -> Any:
    """The server of one study. The queue's model is loaded when the server has started."""

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        queue.start()
        # Loading these takes a second or two, which the first request would otherwise wait for.
        threading.Thread(target=_warm_up, args=(app.state.study,), daemon=True).start()
        try:
            yield
        finally:
            queue.close()

    app = FastAPI(
        title="ffscope explorer",
        version=ffscope.__version__,
        description="The JSON behind every page: what a study's feed-forward memories store.",
        lifespan=running,
        docs_url=None,  # it would load scripts from other servers
        redoc_url=None,
    )
    app.state.study, app.state.queue, app.state.rules = OpenStudy(folder, prepare=cached_overview), queue, rules
    checked = [Depends(refuse_other_parameters)]
    for router in _routers():
        app.include_router(router, dependencies=checked)
    app.add_api_route("/static/vega.js", _vega, dependencies=checked, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC))
    for kind in (FfscopeError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _handle_error)
    app.add_middleware(_CatchUnexpected)
    app.add_middleware(Guard, rules=rules, refuse=_refuse)  # outermost, so that every response gets its headers
    return app


def _routers() -> Iterator[APIRouter]:
    """The router of every module in `pages`."""
    for module in pkgutil.iter_modules(pages.__path__):
        yield import_module(f"{pages.__name__}.{module.name}").router


def _vega() -> Response:
    """The bundle that draws the charts, as shipped with vl-convert."""
    return Response(vega_bundle(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


class _CatchUnexpected:
    """Answers an unexpected exception with status 500 and logs its traceback."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        response_started = False

        async def send_and_note(message: Any) -> None:
            nonlocal response_started
            response_started = True
            await send(message)

        # HEAD is routed as GET; uvicorn drops the body.
        routed = {**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope
        try:
            await self.app(routed, receive, send_and_note)
        except Exception:
            if response_started or scope["type"] != "http":
                raise
            logger.exception("%s failed", visible(scope["path"]))
            message = "The server failed on this request. The error is in the terminal where ffscope serve runs."
            await _refuse(scope, 500, message)(scope, receive, send)


def _warm_up(study: OpenStudy) -> None:
    with suppress(FfscopeError):  # raised again, and reported, at the first request
        _ = study.tables
    vega_bundle()


async def _handle_error(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        return _refuse(request.scope, 422, _validation_message(error))
    if isinstance(error, HTTPException):
        not_found = "There is no such page. The overview links to all pages."
        return _refuse(request.scope, error.status_code, not_found if error.status_code == 404 else error.detail)
    status = next(number for kind, number in _STATUS.items() if isinstance(error, kind))
    return _refuse(request.scope, status, request.app.state.study.without_paths(str(error)))


def _validation_message(error: RequestValidationError) -> str:
    """What is wrong with the first invalid parameter."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first.get("loc", ())[1:]) or "the request body"
    return f"{where} is not valid: {first.get('msg', 'invalid value')}."


def _refuse(scope: Any, status: int, message: str) -> Response:
    """An error response: JSON for JSON and static paths, otherwise a page."""
    if scope["method"] not in ("GET", "HEAD") or scope["path"].endswith((".json", ".js", ".css")):
        return Json(ErrorResponse(message), status_code=status)
    return error_page(message, status=status)
