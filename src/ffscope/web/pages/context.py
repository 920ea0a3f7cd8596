"""The paragraph around a sentence, which the memory page shows on demand."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from ffscope.queries.context import Context, context
from ffscope.web.dependencies import answers, studied
from ffscope.web.responses import Json

router = APIRouter(tags=["study"])


@router.get("/context.json", responses=answers(Context))
def paragraph(request: Request, sentence: Annotated[int, Query(ge=0, le=2**31 - 1)]) -> Json:
    """The paragraph in which a sentence stands."""
    return Json(context(studied(request).tables, sentence))
