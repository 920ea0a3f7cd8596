"""The pages themselves, and what they are made of."""

from fastapi import APIRouter, Request
from starlette.responses import RedirectResponse, Response

from ffscope.html import vega_bundle
from ffscope.memory_name import Memory
from ffscope.queries.layer import searched_layer
from ffscope.queries.memory import searched
from ffscope.web.responses import page
from ffscope.web.routes import annotating, live, reading
from ffscope.web.routes.asking import queue, studied
from ffscope.web.routes.parameters import page_parameters, takes

router = APIRouter(include_in_schema=False)
_LAYER = ("sort", "q", "state", "agrees", "kind")
_LAYER_RANGES = tuple(f"{name}_{end}" for name in ("fires", "max_prob", "precision") for end in ("min", "max"))


def _page(request: Request, kind: str) -> Response:
    about = studied(request).about(model=queue(request).has_model, why=queue(request).place().why)
    about["parameters"] = page_parameters(request.scope["route"].endpoint)
    return page(kind, about, page_token=request.app.state.rules.page_token)


@router.get("/")
@takes()
def overview(request: Request) -> Response:
    """What was studied."""
    return _page(request, "overview")


@router.get("/L{layer:number}")
@takes(own=(*_LAYER, *_LAYER_RANGES))
def layer(request: Request, layer: int) -> Response:
    """One layer."""
    searched_layer(studied(request).tables, layer)
    return _page(request, "layer")


@router.get("/L{layer:number}/{number:number}")
@takes(own=("tab", "pattern", "text"))
def memory(request: Request, layer: int, number: int) -> Response:
    """One memory."""
    searched(studied(request).tables, Memory(layer, number))
    return _page(request, "memory")


@router.get("/L{layer:number}.{number:number}")
def by_name(layer: int, number: int) -> Response:
    """A memory's name leads to its page."""
    return RedirectResponse(f"/L{layer}/{number}")


@router.get("/search")
@takes(reading.search, without=("limit", "offset"), own=("shown", "all"))
def search(request: Request) -> Response:
    """Memories by what they do."""
    return _page(request, "search")


@router.get("/prompt")
@takes(
    live.prompt, live.memories, live.why, live.text, without=("ticket", "memories", "count", "target"), own=("colour",)
)
def prompt(request: Request) -> Response:
    """A text, layer by layer."""
    return _page(request, "prompt")


@router.get("/annotate")
@takes(annotating.tasks, own=("memory",))
def annotate(request: Request) -> Response:
    """The paper's protocol."""
    return _page(request, "annotate")


@router.get("/static/vega.js")
def vega() -> Response:
    """What draws the charts, as vl-convert ships it."""
    return Response(vega_bundle(), media_type="text/javascript", headers={"Cache-Control": "max-age=86400"})
