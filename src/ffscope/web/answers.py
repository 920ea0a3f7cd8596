"""How the server answers: JSON, or a page that draws it."""

import json
import math
from html import escape
from typing import Any

from starlette.responses import HTMLResponse, Response

STYLES = ("style.css", "pages.css", "prompt.css", "annotate.css")


class Json(Response):
    """Anything made of dataclasses, lists and plain values. Numbers that are none become null."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return dumped(content).encode("utf-8", "backslashreplace")


def dumped(content: Any) -> str:
    """As JSON."""
    try:
        return json.dumps(content, default=vars, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(content), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _finite(content: Any) -> Any:
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if isinstance(content, dict):
        return {name: _finite(value) for name, value in content.items()}
    if isinstance(content, list | tuple):
        return [_finite(value) for value in content]
    return _finite(vars(content)) if hasattr(content, "__dict__") else content


def block(name: str, content: Any) -> str:
    """JSON inside a page, as data: no text in it can end the block."""
    said = dumped(content)
    for mark in "<>&\u2028\u2029":
        said = said.replace(mark, f"\\u{ord(mark):04x}")
    return f'<script type="application/json" id="{escape(name)}">{said}</script>'


def page(kind: str, about: dict[str, Any] | None, *, page_token: str, twin: Any = None, status: int = 200) -> Response:
    """A page of the explorer. Its content is drawn in the browser, from its twin."""
    styles = "".join(f'<link rel="stylesheet" href="/static/{name}">' for name in STYLES)
    blocks = block("about", about) + (block("page-twin", twin) if twin is not None else "")
    return HTMLResponse(
        f'<!doctype html><html lang="en" data-page="{escape(kind)}"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="page-token" content="{escape(page_token)}"><title>ffscope</title>{styles}'
        '<link rel="icon" href="/static/icon.svg"><script type="module" src="/static/main.js"></script></head>'
        f"<body><noscript>The explorer needs JavaScript; every page has a JSON twin under its address and .json.</noscript>"
        f"{blocks}</body></html>",
        status_code=status,
    )
