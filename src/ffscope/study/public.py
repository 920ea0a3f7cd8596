"""A study as others may see it: models and texts by their names. Where they are on this machine stays in study.json."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import Any

from ffscope.study.folder import Study

_PATH = re.compile(r"[/~.\\]|[A-Za-z]:[\\/]")  # how a path begins, here or under Windows
_FILES = (".gguf", ".pt")
# Where a manifest names something on this machine: the sections that lead there, the entry, and whether it may be a hub's name.
_SOURCES: tuple[tuple[tuple[str, ...], str, bool], ...] = (
    (("model",), "source", True),
    (("corpus",), "source", False),
    (("settings",), "corpus", False),
    (("settings",), "held_out", False),
    (("stages", "patterns"), "encoder_asked", False),
    (("stages", "labels"), "model", True),
)


def public_name(source: str, *, hub: bool = False) -> str:
    """The last part of a path. A public dataset's name (hf:NAME) stays whole, and with `hub` a public model's (owner/model)."""
    if source.startswith("hf:") and not _PATH.match(source, 3):
        return source
    is_path = _PATH.match(source) or "\\" in source or source.endswith(_FILES) or os.path.exists(source)
    if hub and source.count("/") == 1 and not is_path:
        return source
    return PureWindowsPath(source).name or source  # it reads both kinds of slash


def folder_name(folder: Path) -> str:
    """A study's folder, as pages name it in commands."""
    return folder.resolve().name or "DIR"


def public(study: Study) -> Study:
    """The study with names instead of paths in every text of its manifest. It is for showing, never for writing."""
    manifest = _mapped(study.manifest, hiding(study))
    manifest["settings"].pop("corpus_files", None)
    _section(manifest, ("stages", "labels")).pop("endpoint", None)
    return Study(study.folder, manifest)


def hiding(study: Study) -> Callable[[str], str]:
    """A function that replaces the paths of a study, its model and its text by their names, wherever they occur in a sentence."""
    names = {str(study.folder): folder_name(study.folder), os.path.expanduser("~"): "~"}
    for sections, entry, hub in _SOURCES:
        source = _section(study.manifest, sections).get(entry)
        names |= {source: public_name(source, hub=hub)} if source and isinstance(source, str) else {}
    shown = {path: name for source, name in names.items() for path in _spellings(source)}
    longest_first = sorted(shown, key=len, reverse=True)

    def hide(text: str) -> str:
        for path in longest_first:
            text = text.replace(path, shown[path])
        return text

    return hide


def _section(manifest: dict[str, Any], sections: tuple[str, ...]) -> dict[str, Any]:
    for name in sections:
        manifest = manifest.get(name) or {}
    return manifest


def _spellings(source: str) -> set[str]:
    """A path as it was given and in full. A single word is none: it may stand in any sentence."""
    spellings = {source, source.rstrip("/\\")}
    with suppress(ValueError):  # a character that no path has
        spellings.add(os.path.realpath(os.path.expanduser(source)))
    return {path for path in spellings if len(PureWindowsPath(path).parts) > 1}


def _mapped(content: Any, change: Callable[[str], str]) -> Any:
    """Plain values with every text changed; the rest as it was, in new lists and dictionaries."""
    if isinstance(content, str):
        return change(content)
    if isinstance(content, dict):
        return {name: _mapped(value, change) for name, value in content.items()}
    return [_mapped(value, change) for value in content] if isinstance(content, list) else content
