"""The search page: memories by what they do, or, asked of the model, by how far they raise a token's logit."""

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
from ffscope.web.dependencies import MODEL_REFUSALS, Ticket, answers, ask_model, html_page, studied
from ffscope.web.missing import Missing, missing
from ffscope.web.parameters import takes
from ffscope.web.responses import Json
from ffscope.web.rows import Row, shown

router = APIRouter()
_TYPES: dict[str, type] = {"real": float, "share": float, "count": int, "answer": bool}  # the other kinds are text


@dataclass(frozen=True)
class MatchRow:
    """A memory with its measures; null are those of stages that have not been done, or all where it was left out of the study.

    `promoted` is the token that was asked for, `logit` its logit in the value above the mean of all tokens, which only the model
    knows. The measures, each under its name, are the stages'.
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
    """How many memories match, in how long, and some of them."""

    count: int
    milliseconds: int
    rows: list[MeasuredRow]
    asked: dict[str, Any]


@dataclass(frozen=True)
class TokenResponse:
    """The memories that promote a token most, of how many: the highest logit above the mean of all tokens first."""

    token: Token
    count: int
    vocabulary: int
    rows: list[MeasuredRow]


@dataclass(frozen=True)
class SearchIndexResponse:
    """All that the search page of an export searches, since it has no server to ask."""

    index: SearchIndex
    missing: list[Missing]


def search_response(tables: Tables, wanted: SearchQuery) -> SearchResponse:
    """The memories that match."""
    matches = queries.search(tables, wanted)
    rows = [
        MeasuredRow(
            memory=match.memory,
            hits=match.hits,
            trigger=None if match.trigger is None else shown(match.trigger),
            promoted=match.promoted,
            **match.measures,
        )
        for match in matches.rows
    ]
    return SearchResponse(matches.count, round(1000 * matches.seconds), rows, _asked(wanted))


def _asked(wanted: SearchQuery) -> dict[str, Any]:
    """What was searched for; a choice is under its own name."""
    asked = dict(vars(wanted))
    chosen = asked.pop("choices")
    return asked | {name: chosen.get(name, "") for name in queries.choices()}


def token_response(tables: Tables, ranked: Promoters) -> TokenResponse:
    """The model's answer, with what the study knows of every memory."""
    known = measures_of(tables, [Memory.parse(row.memory) for row in ranked.rows])
    rows = [
        MeasuredRow(
            memory=row.memory,
            promoted=Promoted(ranked.token.token, row.rank, row.probability),
            logit=row.logit,
            **known.get(row.memory, {}),
        )
        for row in ranked.rows
    ]
    return TokenResponse(ranked.token, ranked.memories, ranked.vocabulary, rows)


def search_index_response(tables: Tables) -> SearchIndexResponse:
    """The index of a study's memories, and what it lacks because a stage has not been done."""
    return SearchIndexResponse(search_index(tables), missing(tables.study, ("values", "patterns")))


def _measure_parameters() -> Iterator[Parameter]:
    """A parameter for every measure that can be searched by."""
    described: dict[str, Any] = {
        **{
            name: Query(
                max_length=max(20, *map(len, options)), description=f"{', '.join(options[:-1])} or {options[-1]}."
            )
            for name, options in queries.choices().items()
        },
        **{name: Query(max_length=5, description="yes or no.") for name in queries.answers()},
        **{
            name: Query(max_length=100, description="low..high; either end may be left out.")
            for name in queries.ranges()
        },
    }
    for name, query in described.items():
        yield Parameter(name, Parameter.KEYWORD_ONLY, default="", annotation=Annotated[str, query])


def searched_measures(**asked: str) -> dict[str, str]:
    """What is asked of the measures, by their names; "" where nothing is."""
    return asked


searched_measures.__signature__ = Signature(list(_measure_parameters()))  # type: ignore[attr-defined]
Words = Annotated[str, Query(max_length=1000)]
_LONGEST_SORT = max(20, 1 + max(map(len, queries.sorts())))


@router.get("/search.json", responses=answers(SearchResponse), tags=["study"])
def search(
    request: Request,
    asked: Annotated[dict[str, str], Depends(searched_measures)],
    trigger: Words = "",
    promotes: Annotated[
        str, Query(max_length=1000, description="One of a value's 20 top tokens, as pages spell it.")
    ] = "",
    loose: Annotated[str, Query(max_length=5, description="yes: ignore the token's case and spaces.")] = "",
    pattern: Words = "",
    layers: Annotated[str, Query(max_length=1000, description="Such as 0,3-5.")] = "",
    sort: Annotated[
        str,
        Query(
            max_length=_LONGEST_SORT,
            description="hits, rank, probability, memory or a measure; a minus turns it round.",
        ),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Json:
    """Memories by the text of their triggers, the tokens they promote, their patterns, and ranges of any measure."""
    words = {
        "trigger": trigger,
        "promotes": promotes,
        "loose": loose,
        "pattern": pattern,
        "layers": layers,
        "sort": sort,
    }
    return Json(search_response(studied(request).tables, SearchQuery.parse(words | asked, limit=limit, offset=offset)))


@router.get("/search/token.json", responses=answers(TokenResponse, also=MODEL_REFUSALS), tags=["model"])
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
    return Json(await run_in_threadpool(token_response, tables, ranked))


@router.get("/search", include_in_schema=False)
@takes(search, without=("limit", "offset"), own=("shown", "all"))
def html(request: Request) -> Response:
    """Memories by what they do."""
    return html_page(request, "search")
