"""JSON inside HTML, and the vega bundle: shared by the report and the explorer."""

import json
import math
from functools import cache
from html import escape
from typing import Any

# Characters that could end the script element, or a line in it.
_ESCAPES = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}


def dump_json(content: Any) -> str:
    """Dataclasses, lists and plain values as a JSON string; numbers that are not finite become null."""
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


def json_script(name: str, content: Any) -> str:
    """A script element with JSON as data. Text in the JSON cannot end the element."""
    return f'<script type="application/json" id="{escape(name)}">{dump_json(content).translate(_ESCAPES)}</script>'


@cache
def vega_bundle() -> str:
    """The script that draws the charts, bundled by vl-convert: it defines `vegaEmbed`."""
    import vl_convert

    return vl_convert.javascript_bundle("globalThis.vegaEmbed = vegaEmbed;")
