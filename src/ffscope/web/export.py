"""Write the read-only pages of a study as files, which open from disk or any web host."""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from ffscope.annotating.sheets import draw
from ffscope.errors import StudyError
from ffscope.html import dump_json, json_script, vega_bundle
from ffscope.memory_name import Memory
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.queries.annotations import read
from ffscope.queries.layer import searched_layers
from ffscope.queries.tables import Tables, checked, reading
from ffscope.queries.values import predictive_values
from ffscope.study.folder import Study
from ffscope.study.public import public
from ffscope.web.about import about
from ffscope.web.missing_stages import MissingStage
from ffscope.web.open_study import read_summary
from ffscope.web.pages.diff import diff_response
from ffscope.web.pages.layer import layer_response
from ffscope.web.pages.leaks import leaks_response
from ffscope.web.pages.memory import memory_response
from ffscope.web.pages.overview import overview_response
from ffscope.web.pages.search import search_index_response
from ffscope.web.responses import STATIC, STYLES, document

_PREDICTIVE = 100  # the report shows as many
_LEAKS = 1000
# file: allows scripts next to the page; 'self' matches nothing when pages are opened as files.
_CSP = (
    "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src 'self' file: data:; base-uri 'none'"
)
Page = tuple[str, str, Callable[[], Any]]  # path, kind of page, and a function that returns its JSON


@dataclass(frozen=True)
class Exported:
    """What was written: the first page, the number of pages, and their total size."""

    first: Path
    pages: int
    bytes: int


def export(
    folder: Path | str,
    out: Path,
    *,
    names: str | None = None,
    sample: int = 10,
    progress: ProgressCallback = no_progress,
) -> Exported:
    """Write overview, search, every layer and selected memories of a study into a new folder, each page with its JSON."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise StudyError(f"{out} exists already. Nothing was written: choose a new or empty folder with --out.")
    unfinished = out.with_name(f"{out.name}.unfinished")  # renamed once complete
    try:
        with reading(public(Study.open(folder))) as tables:
            pages = _write(tables, unfinished, names, sample, progress)
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists():
            out.rmdir()
        unfinished.rename(out)
    except OSError as error:
        raise StudyError(
            f"{out} cannot be written: {error.strerror or error}. Choose another folder with --out."
        ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Exported(out / "index.html", pages, sum(file.stat().st_size for file in out.rglob("*") if file.is_file()))


def _write(tables: Tables, out: Path, names: str | None, sample: int, progress: ProgressCallback) -> int:
    """Write all pages and the files they share; returns the number of pages."""
    tables.study.need("triggers")
    tables.load_into_memory()  # hundreds of pages query them
    memories = sorted(set(_selected(tables, names, sample)))
    pages = list(_pages(tables, memories))
    site = _Site(out, about(tables.study), [str(memory) for memory in memories])
    for number, (path, kind, page_data) in enumerate(pages):
        progress(Progress("export", number, len(pages), unit="pages"))
        site.write(path, kind, page_data())
    site.write_static()
    progress(Progress("export", len(pages), len(pages), unit="pages"))
    return len(pages)


def _selected(tables: Tables, names: str | None, sample: int) -> Iterator[Memory]:
    """The named memories; by default the most predictive, the annotated, and a random sample of every layer."""
    if names is not None:
        yield from (checked(tables.study, Memory.parse(name.strip())) for name in names.split(","))
        return
    if tables.study.has("values") and tables.study.has("agreement"):
        yield from (Memory.parse(value.memory) for value in predictive_values(tables, _PREDICTIVE))
    yield from (annotation.memory for annotation in read(tables.study))
    yield from draw(tables.study, sample) if sample else ()


def _pages(tables: Tables, memories: list[Memory]) -> Iterator[Page]:
    summary = read_summary(tables.study.folder)
    yield "index", "overview", lambda: overview_response(tables, summary)
    yield "search", "search", lambda: search_index_response(tables)
    if tables.study.has("diff"):
        yield "diff", "diff", lambda: diff_response(tables)
    if tables.study.has("leaks"):
        yield "leaks", "leaks", lambda: leaks_response(tables, limit=_LEAKS)
    for layer in searched_layers(tables):
        yield f"L{layer}/index", "layer", lambda layer=layer: layer_response(tables, layer)  # type: ignore[misc]
    for memory in memories:
        yield f"L{memory.layer}/{memory.memory}", "memory", lambda memory=memory: memory_response(tables, memory)  # type: ignore[misc]


class _Site:
    """The folder into which pages are written."""

    def __init__(self, folder: Path, about: dict[str, Any], memories: list[str]) -> None:
        self.folder, self.memories = folder, memories
        # Facts that do not differ between pages are written once, into the script.
        self.shared = {name: about.pop(name) for name in ("measures", "missing", "lenses", "glossary", "cases")}
        self.about = {**about, "folder": "DIR", "model": False, "why": None}

    def write(self, path: str, kind: str, data: Any) -> None:
        """Write one page and its JSON."""
        missing = [MissingStage(entry.stage, f"ffscope {entry.stage} DIR", entry.why) for entry in data.missing]
        data = replace(data, missing=missing)
        html_file, json_file = self.folder / f"{path}.html", self.folder / f"{path}.json"
        html_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(dump_json(data), encoding="utf-8", errors="backslashreplace")
        html_file.write_text(self._html(kind, path.count("/"), data), encoding="utf-8", errors="backslashreplace")

    def write_static(self) -> None:
        """Write the files that the pages share."""
        static = self.folder / "static"
        static.mkdir(parents=True, exist_ok=True)
        for name in (*STYLES, "icon.svg"):
            (static / name).write_bytes((STATIC / name).read_bytes())
        (static / "vega.js").write_text(vega_bundle(), encoding="utf-8")
        shared = f"globalThis.sharedAbout = {dump_json(self.shared)};\n"
        (static / "ffscope.js").write_text(shared + bundled_script(), encoding="utf-8", errors="backslashreplace")

    def _html(self, kind: str, depth: int, data: Any) -> str:
        root = "../" * depth or "./"
        blocks = (
            json_script("about", self.about) + json_script("exported", self.memories) + json_script("page-data", data)
        )
        head = f'<meta http-equiv="Content-Security-Policy" content="{escape(_CSP)}">'
        script = f'<script src="{root}static/ffscope.js"></script>'
        return document(kind, head, blocks + script, root=root, attributes=f' data-root="{root}" data-exported=""')


def bundled_script() -> str:
    """All modules of the pages as one classic script, since browsers load no modules from disk.

    No import renames anything and no two modules declare the same name, so the modules can be concatenated in one function.
    """
    sources = {file.name: file.read_text(encoding="utf-8") for file in sorted(STATIC.glob("*.js"))}
    last = sources.pop("main.js")  # it starts the page
    plain = (_without_modules(source) for source in (*sources.values(), last))
    return '"use strict";\n(() => {\n' + "\n".join(plain) + "\n})();\n"


def _without_modules(source: str) -> str:
    without_imports = re.sub(r"^import\s[^;]*;\n", "", source, flags=re.MULTILINE)
    return re.sub(r"^export (?=async |function |class |const |let )", "", without_imports, flags=re.MULTILINE)
