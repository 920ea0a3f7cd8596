"""The explorer's server, put together: a study, maybe its model, the rules, the addresses."""

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
from ffscope.web.dependencies import Refused
from ffscope.web.guard import App, Guard, Rules, Scope
from ffscope.web.model_queue import Busy, Left, ModelQueue, NoModel, NoRoom
from ffscope.web.open_study import OpenStudy
from ffscope.web.pages.overview import kept_overview
from ffscope.web.parameters import refuse_other_parameters
from ffscope.web.responses import STATIC, Json, refusal

logger = logging.getLogger(__name__)
# What an error means to whoever asked; the first that fits.
_STATUS: dict[type[Exception], int] = {
    MemoryNameError: 404,
    StudyError: 409,
    NoModel: 503,
    NoRoom: 503,
    Busy: 503,
    Left: 499,
    FfscopeError: 400,
}


def make_app(folder: Path, *, rules: Rules, queue: ModelQueue) -> Any:
    """The server of one study. The queue's model is loaded when the server has started."""

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        queue.start()
        # What the first pages would wait for, a second or two, is done while nobody has asked yet.
        threading.Thread(target=_get_ready, args=(app.state.studied,), daemon=True).start()
        try:
            yield
        finally:
            queue.close()

    app = FastAPI(
        title="ffscope explorer",
        version=ffscope.__version__,
        description="Every page's JSON twin: what a study's feed-forward memories store.",
        lifespan=running,
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
    )
    app.state.studied, app.state.queue, app.state.rules = OpenStudy(folder, prepare=kept_overview), queue, rules
    checked = [Depends(refuse_other_parameters)]
    for router in _routers():
        app.include_router(router, dependencies=checked)
    app.add_api_route("/static/vega.js", _vega, dependencies=checked, include_in_schema=False)
    app.mount("/static", StaticFiles(directory=STATIC))
    for kind in (FfscopeError, HTTPException, RequestValidationError):
        app.add_exception_handler(kind, _refused)
    app.add_middleware(_Caught)
    app.add_middleware(Guard, rules=rules, refuse=_refuse)  # around everything, so that every answer has its headers
    return app


def _routers() -> Iterator[APIRouter]:
    """Those of all pages: every module of `pages` has one."""
    for module in pkgutil.iter_modules(pages.__path__):
        yield import_module(f"{pages.__name__}.{module.name}").router


def _vega() -> Response:
    """What draws the charts, as vl-convert ships it."""
    return Response(vega_bundle(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})


class _Caught:
    """What nobody foresaw is a sentence to whoever asked, and a traceback to whoever runs the server."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        begun = False

        async def sending(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        # Whoever asks for the head of a page is answered as for the page; the server leaves the body out.
        asked = {**scope, "method": "GET"} if scope.get("method") == "HEAD" else scope
        try:
            await self.app(asked, receive, sending)
        except Exception:
            if begun or scope["type"] != "http":
                raise
            logger.exception("%s failed", visible(scope["path"]))
            said = "Something went wrong in the server; the terminal where ffscope serve runs says what."
            await _refuse(scope, 500, said)(scope, receive, send)


def _get_ready(studied: OpenStudy) -> None:
    with suppress(FfscopeError):  # which is said to whoever asks
        _ = studied.tables
    vega_bundle()


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        return _refuse(request.scope, 422, _not_understood(error))
    if isinstance(error, HTTPException):
        said = "There is no such page. The overview leads to all of them." if error.status_code == 404 else error.detail
        return _refuse(request.scope, error.status_code, said)
    status = next(number for kind, number in _STATUS.items() if isinstance(error, kind))
    return _refuse(request.scope, status, request.app.state.studied.without_paths(str(error)))


def _not_understood(error: RequestValidationError) -> str:
    """What was wrong with the first of what was given."""
    first = error.errors()[0]
    where = ".".join(str(part) for part in first.get("loc", ())[1:]) or "what was sent"
    return f"{where} is not understood: {first.get('msg', 'it is not valid')}."


def _refuse(scope: Any, status: int, said: str) -> Response:
    """As JSON to scripts, as a page to people."""
    if scope["method"] not in ("GET", "HEAD") or scope["path"].endswith((".json", ".js", ".css")):
        return Json(Refused(said), status_code=status)
    return refusal(said, status=status)
