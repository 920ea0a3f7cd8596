"""What a study holds: every page's JSON twin."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from ffscope.memory_name import Memory
from ffscope.queries.context import Context, context
from ffscope.queries.search import Wanted, ranges
from ffscope.queries.search import answers as yes_or_no
from ffscope.web.responses import Json
from ffscope.web.routes.asking import Layer, Number, answers, studied
from ffscope.web.twins.layer import LayerTwin, layer_twin
from ffscope.web.twins.memory import MemoryTwin, memory_twin
from ffscope.web.twins.overview import OverviewTwin
from ffscope.web.twins.search import SearchTwin, search_twin

router = APIRouter(tags=["study"])
Words = Annotated[str, Query(max_length=1000)]
Range = Annotated[str, Query(max_length=100, description="low..high; either end may be left out.")]
Answer = Annotated[str, Query(max_length=5, description="yes or no.")]


@router.get("/index.json", responses=answers(OverviewTwin))
def overview(request: Request) -> Json:
    """What was studied, the figures, the layers."""
    return Json(studied(request).overview())


@router.get("/L{layer:number}.json", responses=answers(LayerTwin))
def layer(request: Request, layer: Layer) -> Json:
    """The memories of a layer, column by column."""
    return Json(studied(request).kept(f"L{layer}", lambda tables: layer_twin(tables, layer)))


@router.get("/L{layer:number}/{number:number}.json", responses=answers(MemoryTwin))
def memory(request: Request, layer: Layer, number: Number) -> Json:
    """Everything about one memory."""
    return Json(memory_twin(studied(request).tables, Memory(layer, number)))


@router.get("/context.json", responses=answers(Context))
def paragraph(request: Request, sentence: Annotated[int, Query(ge=0, le=2**31 - 1)]) -> Json:
    """The paragraph in which a sentence stands."""
    return Json(context(studied(request).tables, sentence))


@router.get("/search.json", responses=answers(SearchTwin))
def search(
    request: Request,
    trigger: Words = "",
    promotes: Annotated[
        str, Query(max_length=1000, description="One of a value's 20 top tokens, as pages spell it.")
    ] = "",
    loose: Annotated[str, Query(max_length=5, description="yes: ignore the token's case and spaces.")] = "",
    pattern: Words = "",
    kind: Annotated[str, Query(max_length=20, description="shallow, semantic, both or none.")] = "",
    layers: Annotated[str, Query(max_length=1000, description="Such as 0,3-5.")] = "",
    dead: Answer = "",
    agrees: Answer = "",
    fires: Range = "",
    mean: Range = "",
    maximum: Range = "",
    max_prob: Range = "",
    norm: Range = "",
    next_rank: Range = "",
    precision: Range = "",
    patterns: Range = "",
    sort: Annotated[
        str, Query(max_length=20, description="hits, rank, probability, memory or a measure; a minus turns it round.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Json:
    """Memories by the text of their triggers, the tokens they promote, their patterns, and ranges of any measure."""
    given: dict[str, Any] = locals()
    said = {name: given[name] for name in ("trigger", "promotes", "loose", "pattern", "kind", "layers", "sort")}
    said |= {name: given[name] for name in (*yes_or_no(), *ranges())}
    wanted = Wanted.parse(said, limit=limit, offset=offset)
    return Json(search_twin(studied(request).tables, wanted))
