"""How the server answers: JSON, or a page that draws it."""

from html import escape
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse, Response

from ffscope.html import block, dumped
from ffscope.tokens import visible

STATIC = Path(__file__).parent / "static"
STYLES = ("style.css", "pages.css", "prompt.css", "annotate.css")


class Json(Response):
    """Anything made of dataclasses, lists and plain values. Numbers that are none become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumped(content).encode("utf-8", "backslashreplace")


def page(kind: str, about: dict[str, Any] | None, *, page_token: str) -> Response:
    """A page of the explorer. Its content is drawn in the browser, from its twin."""
    head = (
        f'<meta name="page-token" content="{escape(page_token)}"><script type="module" src="/static/main.js"></script>'
    )
    return _html(document(kind, head, block("about", about)))


def refusal(said: str, *, status: int) -> Response:
    """A page that says why there is none, also where scripts and styles are refused too."""
    script = '<script type="module" src="/static/main.js"></script>'
    shown = f'<p>{escape(visible(said, longest=2000))}</p><p><a href="/">Overview</a></p>'
    return _html(document("error", script, f"<main><h1>This cannot be shown</h1>{shown}</main>"), status=status)


def document(kind: str, head: str, body: str, *, root: str = "/", attributes: str = "") -> str:
    """The page around everything, on the server and in an export."""
    styles = "".join(f'<link rel="stylesheet" href="{root}static/{name}">' for name in STYLES)
    said = "The explorer needs JavaScript; every page has a JSON twin under its address and .json."
    return (
        f'<!doctype html><html lang="en" data-page="{escape(kind)}"{attributes}><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>ffscope</title>'
        f'{styles}<link rel="icon" href="{root}static/icon.svg">{head}</head>'
        f"<body><noscript>{said}</noscript>{body}</body></html>\n"
    )


def _html(text: str, *, status: int = 200) -> Response:
    # A folder's or a model's name may hold what is not UTF-8.
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status_code=status)
