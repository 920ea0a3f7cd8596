"""The page of what the model gives away: completions with the memories that hold them, and the exposure of canaries."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from ffscope.queries.leaks import CanaryRow, LeakRow, canary_rows, leak_numbers, leak_rows
from ffscope.queries.tables import Tables
from ffscope.web.dependencies import html_page, response_docs, served_study
from ffscope.web.missing_stages import MissingStage
from ffscope.web.parameters import takes
from ffscope.web.responses import Json

router = APIRouter()
_COUNT = 100
Kind = Literal["", "personal", "secret", "phrase", "copied"]


@dataclass(frozen=True)
class LeaksResponse:
    """What was searched, the numbers over all leaks, those of the chosen kind, and the canaries."""

    leak_tokens: int
    leak_starts: str
    masked: bool
    searched: dict[str, int]
    held_out: dict[str, int]
    loss: float | None
    all_memories: int
    loss_change_together: list[float] | None
    numbers: dict[str, Any]
    kind: str
    leaks: list[LeakRow]
    canaries: list[CanaryRow]
    missing: list[MissingStage]


def leaks_response(tables: Tables, kind: str = "", limit: int = _COUNT) -> LeaksResponse:
    """The JSON of the page."""
    rows = leak_rows(tables, limit, kind=kind)
    entry = tables.study.manifest["stages"]["leaks"]
    return LeaksResponse(
        **{name: entry["options"][name] for name in ("leak_tokens", "leak_starts")},
        **{name: entry[name] for name in ("searched", "held_out", "loss")},
        masked=not entry["show_personal"],
        all_memories=entry["memories"],
        loss_change_together=entry["together"],
        numbers=leak_numbers(tables),
        kind=kind,
        leaks=rows,
        canaries=canary_rows(tables),
        missing=[],
    )


@router.get("/leaks.json", responses=response_docs(LeaksResponse), tags=["study"])
def leaks(
    request: Request,
    kind: Annotated[Kind, Query(description="Leaks of this kind only; personal: with personal data.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = _COUNT,
) -> Json:
    """Text that the model completes word for word, and the memories that hold it."""
    study = served_study(request)
    return Json(study.cached(f"leaks {kind} {limit}", lambda tables: leaks_response(tables, kind, limit)))


@router.get("/leaks", include_in_schema=False)
@takes(leaks, without=("limit",))
def html(request: Request) -> Response:
    """The page."""
    return html_page(request, "leaks")
