"""The page that compares two models: what has changed by layer, and the memories that changed most, side by side."""

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ffscope.queries.diff import SORTS, ChangedMemory, DiffSummary, changed_memories, diff_summary
from ffscope.queries.prefixes import Trigger
from ffscope.queries.tables import Tables
from ffscope.study.public import public_name
from ffscope.web.dependencies import html_page, response_docs, served_study
from ffscope.web.missing_stages import MissingStage
from ffscope.web.parameters import takes
from ffscope.web.responses import Json
from ffscope.web.rows import Row, prefix_row

router = APIRouter()
_COUNT = 50


@dataclass(frozen=True)
class Side:
    """A memory in one of the two models: its firing rate, the tokens that its value promotes most, and its top trigger."""

    firing: float | None
    tokens: list[str]
    trigger: Row | None


@dataclass(frozen=True)
class Pair:
    """A memory, and its partner in the model before, if it has one."""

    memory: str
    partner: str | None
    change: float | None
    correlation: float | None
    key_cosine: float | None
    value_cosine: float | None
    triggers_kept: float | None
    rank_of_top: int | None
    before: Side
    after: Side


@dataclass(frozen=True)
class DiffResponse(DiffSummary):
    """The summary, and the memories in the chosen order."""

    sorts: list[str]
    sort: str
    layer: int | None
    memories: list[Pair]
    missing: list[MissingStage]


def diff_response(tables: Tables, sort: str = "change", layer: int | None = None, limit: int = _COUNT) -> DiffResponse:
    """The JSON of the page."""
    summary = diff_summary(tables)
    return DiffResponse(
        **{
            **vars(summary),
            "before": public_name(summary.before, hub=True),
            "after": public_name(summary.after, hub=True),
        },
        sorts=list(SORTS),
        sort=sort,
        layer=layer,
        memories=[_pair(memory) for memory in changed_memories(tables, limit, sort=sort, layer=layer)],
        missing=[],
    )


def _pair(memory: ChangedMemory) -> Pair:
    names = ("change", "correlation", "key_cosine", "value_cosine", "triggers_kept", "rank_of_top")
    return Pair(
        memory=memory.memory,
        partner=memory.partner,
        **{name: getattr(memory, name) for name in names},
        before=_side(memory.firing_before, memory.tokens_before, memory.trigger_before),
        after=_side(memory.firing_after, memory.tokens_after, memory.trigger_after),
    )


def _side(firing: float | None, tokens: list[str], trigger: Trigger | None) -> Side:
    return Side(firing, tokens, None if trigger is None else prefix_row(trigger))


@router.get("/diff.json", responses=response_docs(DiffResponse), tags=["study"])
def diff(
    request: Request,
    sort: Annotated[
        str, Query(max_length=20, description=f"What the memories are sorted by: {', '.join(SORTS)}.")
    ] = "change",
    layer: Annotated[int | None, Query(ge=0, le=10**6, description="Memories of this layer only.")] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = _COUNT,
) -> Json:
    """What has changed between two models, and the memories that changed most."""
    study = served_study(request)
    name = f"diff {sort} {layer} {limit}"
    return Json(study.cached(name, lambda tables: diff_response(tables, sort, layer, limit)))


@router.get("/diff", include_in_schema=False)
@takes(diff, without=("limit",))
def html(request: Request) -> Response:
    """The page."""
    return html_page(request, "diff")
