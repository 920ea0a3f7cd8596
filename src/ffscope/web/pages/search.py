"""The search page: memories by triggers, promoted tokens, patterns and measures, or ranked by the model for one token."""

from collections.abc import Iterator
from dataclasses import dataclass, make_dataclass
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from ffscope.live.responses import Promoters
from ffscope.memory_name import Memory, parse_layers
from ffscope.queries import search as queries
from ffscope.queries.layer import measures_of
from ffscope.queries.search import Promoted, SearchQuery
from ffscope.queries.search_index import SearchIndex, search_index
from ffscope.queries.tables import Tables
from ffscope.stages.registry import measures
from ffscope.tokens import Token
from ffscope.web.dependencies import MODEL_ERRORS, Ticket, ask_model, html_page, response_docs, served_study
from ffscope.web.missing_stages import MissingStage, missing_stages
from ffscope.web.parameters import takes
from ffscope.web.responses import Json
from ffscope.web.rows import Row, prefix_row

router = APIRouter()
_TYPES: dict[str, type] = {"real": float, "share": float, "count": int, "answer": bool}  # the other kinds are text


@dataclass(frozen=True)
class MatchRow:
    """A memory with the measures that stages declare, each under its name.

    The measures of stages that have not been run are null; all are null for a memory left out of the study. `promoted` is the
    token searched for, `logit` its logit in the value minus the mean over all tokens, which needs the model.
    """

    memory: str
    hits: int | None = None
    trigger: Row | None = None
    promoted: Promoted | None = None
    logit: float | None = None


if TYPE_CHECKING:
    MeasuredRow = MatchRow
else:
    MeasuredRow = make_dataclass(
        "MeasuredRow",
        [(name, _TYPES.get(measure.kind, str) | None, None) for name, (_, measure) in measures().items()],
        bases=(MatchRow,),
        frozen=True,
        namespace={"__doc__": MatchRow.__doc__},
    )


@dataclass(frozen=True)
class SearchResponse:
    """The number of matching memories, the time of the search, and one page of the matches."""

    count: int
    milliseconds: int
    rows: list[MeasuredRow]
    asked: dict[str, Any]


@dataclass(frozen=True)
class TokenResponse:
    """The memories that promote a token most, by its logit minus the mean over all tokens; `count` memories were ranked."""

    token: Token
    count: int
    vocabulary: int
    rows: list[MeasuredRow]


@dataclass(frozen=True)
class SearchIndexResponse:
    """The index that the search page of an export searches, as there is no server."""

    index: SearchIndex
    missing: list[MissingStage]


def search_response(tables: Tables, wanted: SearchQuery) -> SearchResponse:
    """The JSON of a search."""
    matches = queries.search(tables, wanted)
    rows = [
        MeasuredRow(
            memory=match.memory,
            hits=match.hits,
            trigger=None if match.trigger is None else prefix_row(match.trigger),
            promoted=match.promoted,
            **match.measures,
        )
        for match in matches.rows
    ]
    return SearchResponse(matches.count, round(1000 * matches.seconds), rows, _query(wanted))


def _query(wanted: SearchQuery) -> dict[str, Any]:
    """The parameters of the search; each choice is under its own name."""
    query = dict(vars(wanted))
    choices = query.pop("choices")
    return query | {name: choices.get(name, "") for name in queries.choices()}


def token_response(tables: Tables, ranked: Promoters) -> TokenResponse:
    """The model's ranking, with the study's measures of every memory."""
    values = measures_of(tables, [Memory.parse(row.memory) for row in ranked.rows])
    rows = [
        MeasuredRow(
            memory=row.memory,
            promoted=Promoted(ranked.token.token, row.rank, row.probability),
            logit=row.logit,
            **values.get(row.memory, {}),
        )
        for row in ranked.rows
    ]
    return TokenResponse(ranked.token, ranked.memories, ranked.vocabulary, rows)


def search_index_response(tables: Tables) -> SearchIndexResponse:
    """The index of a study's memories, and the stages that it lacks."""
    return SearchIndexResponse(search_index(tables), missing_stages(tables.study, ("values", "patterns")))


def _measure_parameters() -> Iterator[Parameter]:
    """A query parameter for every measure that can be searched by."""
    described: dict[str, Any] = {
        **{
            name: Query(
                max_length=max(20, *map(len, options)), description=f"{', '.join(options[:-1])} or {options[-1]}."
            )
            for name, options in queries.choices().items()
        },
        **{name: Query(max_length=5, description="yes or no.") for name in queries.answers()},
        **{
            name: Query(max_length=100, description="low..high; either end may be omitted.")
            for name in queries.ranges()
        },
    }
    for name, query in described.items():
        yield Parameter(name, Parameter.KEYWORD_ONLY, default="", annotation=Annotated[str, query])


def measure_filters(**filters: str) -> dict[str, str]:
    """The filters on measures, by name; "" for none."""
    return filters


measure_filters.__signature__ = Signature(list(_measure_parameters()))  # type: ignore[attr-defined]
Words = Annotated[str, Query(max_length=1000)]
_MAX_SORT = max(20, 1 + max(map(len, queries.sorts())))


@router.get("/search.json", responses=response_docs(SearchResponse), tags=["study"])
def search(
    request: Request,
    filters: Annotated[dict[str, str], Depends(measure_filters)],
    trigger: Words = "",
    promotes: Annotated[
        str, Query(max_length=1000, description="A token among the 20 top tokens of a value, spelt as on the pages.")
    ] = "",
    loose: Annotated[str, Query(max_length=5, description="yes: ignore case and spaces of the token.")] = "",
    pattern: Words = "",
    layers: Annotated[str, Query(max_length=1000, description="For example 0,3-5.")] = "",
    sort: Annotated[
        str,
        Query(
            max_length=_MAX_SORT,
            description="hits, rank, probability, memory or a measure; a leading minus reverses the order.",
        ),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Json:
    """Memories by the text of their triggers, promoted tokens, patterns and measures."""
    words = {
        "trigger": trigger,
        "promotes": promotes,
        "loose": loose,
        "pattern": pattern,
        "layers": layers,
        "sort": sort,
    }
    return Json(
        search_response(served_study(request).tables, SearchQuery.parse(words | filters, limit=limit, offset=offset))
    )


@router.get("/search/token.json", responses=response_docs(TokenResponse, also=MODEL_ERRORS), tags=["model"])
async def promoters(
    request: Request,
    token: Annotated[str, Query(min_length=1, max_length=200, description="A token spelt as on the pages, or #id.")],
    layers: Annotated[str, Query(max_length=1000, description="For example 0,3-5; by default all.")] = "",
    count: Annotated[int, Query(ge=1, le=1000)] = 100,
    ticket: Ticket = "",
) -> Json:
    """All memories ranked by a token's logit in their values minus the mean over all tokens."""
    tables = await run_in_threadpool(lambda: served_study(request).tables)
    numbers = parse_layers(layers, len(tables.study.manifest["model"]["memories"])) if layers else None
    ranked = await ask_model(
        request, ticket, lambda live, stop: live.promoters(token, layers=numbers, count=count, stop=stop)
    )
    return Json(await run_in_threadpool(token_response, tables, ranked))


@router.get("/search", include_in_schema=False)
@takes(search, without=("limit", "offset"), own=("shown", "all"))
def html(request: Request) -> Response:
    """The search page."""
    return html_page(request, "search")
