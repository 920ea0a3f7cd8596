"""The paragraph around a sentence, shown on demand on the memory page."""

from typing import Annotated

from fastapi import APIRouter, Query, Request

from ffscope.queries.context import Context, context
from ffscope.web.dependencies import response_docs, served_study
from ffscope.web.responses import Json

router = APIRouter(tags=["study"])


@router.get("/context.json", responses=response_docs(Context))
def paragraph(request: Request, sentence: Annotated[int, Query(ge=0, le=2**31 - 1)]) -> Json:
    """The paragraph that contains a sentence."""
    return Json(context(served_study(request).tables, sentence))
