"""The read-only pages of a study as files, which open from the disk or any web host."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ffscope.annotating.records import read
from ffscope.annotating.sheets import draw
from ffscope.errors import StudyError
from ffscope.memory import Memory
from ffscope.progress import Progress, Tell, nobody
from ffscope.queries import Tables, checked, predictive_values, reading
from ffscope.web.answers import STYLES, block, dumped
from ffscope.web.routes.pages import vega_bundle
from ffscope.web.studied import Studied
from ffscope.web.twins.layer import layer_twin
from ffscope.web.twins.memory import memory_twin

_STATIC = Path(__file__).parent / "static"
_PREDICTIVE = 100  # values that the report shows too
# Scripts beside the page only: 'self' says nothing where pages are files.
_CSP = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:; base-uri 'none'"
)


@dataclass(frozen=True)
class Exported:
    """What was written: the first page, how many there are, and how much room they take."""

    first: Path
    pages: int
    bytes: int


def export(
    folder: Path | str, out: Path, *, names: str | None = None, sample: int = 10, progress: Tell = nobody
) -> Exported:
    """Write the overview, every layer and chosen memories of a study into a new folder, each page with its JSON twin."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StudyError(f"{out} is there already and not empty. Nothing was written: name another folder with --out.")
    studied = Studied(Path(folder))
    with reading(folder) as tables:
        tables.study.need("triggers")
        tables.hold()  # hundreds of pages ask them
        memories = sorted(set(_chosen(tables, names, sample)))
        pages = list(_pages(tables, studied, memories))
        site = _Site(out, studied.about(model=False), [str(memory) for memory in memories])
        for number, (path, kind, make) in enumerate(pages):
            progress(Progress("export", number, len(pages), unit="pages"))
            site.write(path, kind, make())
        site.write_static()
    progress(Progress("export", len(pages), len(pages), unit="pages"))
    return Exported(
        out / "index.html", len(pages), sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    )


def _chosen(tables: Tables, names: str | None, sample: int) -> Iterator[Memory]:
    """Those that are named; or else the most predictive, those that people annotated, and some of every layer by lot."""
    if names is not None:
        yield from (checked(tables.study, Memory.parse(name.strip())) for name in names.split(","))
        return
    if tables.study.has("agreement"):
        yield from (Memory.parse(one.memory) for one in predictive_values(tables, _PREDICTIVE))
    yield from (one.memory for one in read(tables.study))
    yield from draw(tables.study, sample) if sample else ()


def _pages(tables: Tables, studied: Studied, memories: list[Memory]) -> Iterator[tuple[str, str, Any]]:
    """Every page's path, its kind, and what makes its twin."""
    yield "index", "overview", studied.overview
    for (layer,) in tables.rows("SELECT DISTINCT layer FROM memories ORDER BY layer"):
        yield f"L{layer}/index", "layer", lambda layer=layer: layer_twin(tables, layer)
    for memory in memories:
        yield f"L{memory.layer}/{memory.memory}", "memory", lambda memory=memory: memory_twin(tables, memory)


class _Site:
    """The folder that pages are written to."""

    def __init__(self, folder: Path, about: dict[str, Any], memories: list[str]) -> None:
        # A site is for others: where the study lay is not their business.
        self.folder, self.about, self.memories = folder, {**about, "folder": "DIR"}, memories

    def write(self, path: str, kind: str, twin: Any) -> None:
        """One page and its twin."""
        page, said = self.folder / f"{path}.html", self.folder / f"{path}.json"
        page.parent.mkdir(parents=True, exist_ok=True)
        said.write_text(dumped(twin), encoding="utf-8", errors="backslashreplace")
        root = "../" * path.count("/")
        page.write_text(self._html(kind, root, twin), encoding="utf-8", errors="backslashreplace")

    def write_static(self) -> None:
        """What the pages share."""
        static = self.folder / "static"
        static.mkdir(parents=True, exist_ok=True)
        for name in (*STYLES, "icon.svg"):
            (static / name).write_bytes((_STATIC / name).read_bytes())
        (static / "vega.js").write_text(vega_bundle(), encoding="utf-8")
        (static / "ffscope.js").write_text(one_script(), encoding="utf-8")

    def _html(self, kind: str, root: str, twin: Any) -> str:
        styles = "".join(f'<link rel="stylesheet" href="{root}static/{name}">' for name in STYLES)
        blocks = block("about", self.about) + block("exported", self.memories) + block("page-twin", twin)
        return (
            f'<!doctype html><html lang="en" data-page="{kind}" data-root="{root or "./"}" data-exported=""><head>'
            '<meta charset="utf-8">'
            f'<meta http-equiv="Content-Security-Policy" content="{escape(_CSP)}">'
            f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>ffscope</title>{styles}'
            f'<link rel="icon" href="{root}static/icon.svg"></head>'
            f'<body>{blocks}<script src="{root}static/ffscope.js"></script></body></html>\n'
        )


def one_script() -> str:
    """All modules of the pages as one classic script: browsers load no modules from the disk.

    Modules import names as they are and no two declare the same, so that they can stand one after another in one function.
    """
    sources = {file.name: file.read_text(encoding="utf-8") for file in sorted(_STATIC.glob("*.js"))}
    last = sources.pop("main.js")  # which begins
    plain = (_as_plain(source) for source in (*sources.values(), last))
    return '"use strict";\n(() => {\n' + "\n".join(plain) + "\n})();\n"


def _as_plain(source: str) -> str:
    without = re.sub(r"^import\s[^;]*;\n", "", source, flags=re.MULTILINE)
    return re.sub(r"^export (?=async |function |class |const |let )", "", without, flags=re.MULTILINE)
