"""What mkdocs does to every page: fills in the generated parts, and makes plain text of links that leave docs/."""

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from generated import PARTS

_GENERATED = re.compile(r"<!-- generated: (\w+) -->")
_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+([^)]*)\)")
_DOCS = Path(__file__).parent


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page as it is rendered."""
    markdown = _GENERATED.sub(lambda match: PARTS[match[1]](), markdown)
    folder = (_DOCS / page.file.src_uri).parent

    def inside(match: re.Match[str]) -> str:
        target = match[0].rsplit("(", 1)[1].rstrip(")").partition("#")[0]
        return match[0] if (folder / target).resolve().is_relative_to(_DOCS) else _outside(match[1], match[2])

    return _OUTSIDE.sub(inside, markdown)


def _outside(text: str, path: str) -> str:
    """A link to a file of the repository, which the site does not have."""
    path = path.partition("#")[0]
    return f"`{path}`" if text.strip("`") in path else f"{text} (`{path}`)"
