"""The server's responses: JSON, and HTML pages that draw it."""

from html import escape
from pathlib import Path
from typing import Any

from starlette.responses import HTMLResponse, Response

from ffscope.html import dump_json, json_script
from ffscope.tokens import visible

STATIC = Path(__file__).parent / "static"
STYLES = ("style.css", "pages.css", "prompt.css", "annotate.css")


class Json(Response):
    """JSON of dataclasses, lists and plain values. NaN and infinities become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dump_json(content).encode("utf-8", "backslashreplace")


def page(kind: str, about: dict[str, Any] | None, *, page_token: str) -> Response:
    """A page of the explorer. The browser draws its content from the page's JSON."""
    head = (
        f'<meta name="page-token" content="{escape(page_token)}"><script type="module" src="/static/main.js"></script>'
    )
    return _html(document(kind, head, json_script("about", about)))


def error_page(message: str, *, status: int) -> Response:
    """A page with an error message, readable without scripts and styles."""
    script = '<script type="module" src="/static/main.js"></script>'
    content = f'<p>{escape(visible(message, longest=2000))}</p><p><a href="/">Overview</a></p>'
    return _html(document("error", script, f"<main><h1>This page cannot be shown</h1>{content}</main>"), status=status)


def document(kind: str, head: str, body: str, *, root: str = "/", attributes: str = "") -> str:
    """The HTML document of a page, on the server and in an export."""
    styles = "".join(f'<link rel="stylesheet" href="{root}static/{name}">' for name in STYLES)
    notice = "The explorer needs JavaScript. The data of a page are at its URL with .json added."
    return (
        f'<!doctype html><html lang="en" data-page="{escape(kind)}"{attributes}><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><title>ffscope</title>'
        f'{styles}<link rel="icon" href="{root}static/icon.svg">{head}</head>'
        f"<body><noscript>{notice}</noscript>{body}</body></html>\n"
    )


def _html(text: str, *, status: int = 200) -> Response:
    # Names of folders and models may be invalid UTF-8.
    return HTMLResponse(text.encode("utf-8", "backslashreplace"), status_code=status)
