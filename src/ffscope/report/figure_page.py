"""A figure as a separate interactive page. It needs no network and can run only the scripts that draw it."""

import base64
import hashlib
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from ffscope.html import json_script, vega_bundle

_STYLE = """
  body { font: 14px/1.4 system-ui, sans-serif; color: #1a1a1a; background: #fff; margin: 1rem; overflow-x: auto }
  h1 { font-size: 1rem; font-weight: normal }
  #tip { position: fixed; pointer-events: none; background: #fff; border: 1px solid #767676; border-radius: 4px; padding: .3rem }
  #tip th { text-align: left; font-weight: normal; color: #555; padding-right: .8rem } #tip td { text-align: right }
"""


def figure_page(title: str, spec: dict[str, Any]) -> str:
    """The HTML page of a vega-lite specification, with the title as heading."""
    scripts = (vega_bundle(), _starter())
    # Scripts and styles are allowed by hash, so nothing injected into the page takes effect.
    allowed = f"script-src {_hashes(*scripts)}; style-src {_hashes(_STYLE)}; img-src data:"
    policy = f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f'<body><main><h1>{escape(title)}</h1><div id="figure"></div></main>'
        f'<table id="tip" role="tooltip" hidden></table>{json_script("spec", spec)}'
        + "".join(f"<script>{script}</script>" for script in scripts)
        + "</body></html>\n"
    )


@cache
def _starter() -> str:
    return files("ffscope.report").joinpath("figure_page.js").read_text(encoding="utf-8")


def _hashes(*texts: str) -> str:
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
