"""A study for display: models and texts by name, without their paths on this machine."""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import Any

from ffscope.study.folder import Study

_PATH = re.compile(r"[/~.\\]|[A-Za-z]:[\\/]")  # the beginning of a path, also on Windows
_FILES = (".gguf", ".pt")
# Entries of study.json that may be paths: the sections, the entry, and whether it may be a name on the hub.
_SOURCES: tuple[tuple[tuple[str, ...], str, bool], ...] = (
    (("model",), "source", True),
    (("corpus",), "source", False),
    (("settings",), "corpus", False),
    (("settings",), "held_out", False),
    (("stages", "patterns"), "encoder_asked", False),
    (("stages", "labels"), "model", True),
    (("stages", "diff", "base"), "source", True),
    (("stages", "diff", "base"), "study", False),
    (("stages", "leaks", "options"), "leak_text", False),
)


def public_name(source: str, *, hub: bool = False) -> str:
    """The last part of a path. Names of public datasets (hf:NAME), and with `hub` of public models (owner/model), are kept."""
    if source.startswith("hf:") and not _PATH.match(source, 3):
        return source
    is_path = _PATH.match(source) or "\\" in source or source.endswith(_FILES) or os.path.exists(source)
    if hub and source.count("/") == 1 and not is_path:
        return source
    return PureWindowsPath(source).name or source  # it splits at both kinds of slash


def folder_name(folder: Path) -> str:
    """The name of a study's folder, for the commands shown on pages."""
    return folder.resolve().name or "DIR"


def public(study: Study) -> Study:
    """A copy of the study with names instead of paths in every string of its manifest. For display, not for writing."""
    manifest = _map_strings(study.manifest, path_hider(study))
    manifest["settings"].pop("corpus_files", None)
    _section(manifest, ("stages", "labels")).pop("endpoint", None)
    return Study(study.folder, manifest)


def path_hider(study: Study) -> Callable[[str], str]:
    """A function that replaces the paths of a study, its model and its text in a string by their names."""
    names = {str(study.folder): folder_name(study.folder), os.path.expanduser("~"): "~"}
    for sections, entry, hub in _SOURCES:
        source = _section(study.manifest, sections).get(entry)
        names |= {source: public_name(source, hub=hub)} if source and isinstance(source, str) else {}
    replacements = {path: name for source, name in names.items() for path in _spellings(source)}
    longest_first = sorted(replacements, key=len, reverse=True)

    def hide(text: str) -> str:
        for path in longest_first:
            text = text.replace(path, replacements[path])
        return text

    return hide


def _section(manifest: dict[str, Any], sections: tuple[str, ...]) -> dict[str, Any]:
    for name in sections:
        manifest = manifest.get(name) or {}
    return manifest


def _spellings(source: str) -> set[str]:
    """A path as written and in full. Single words are left out: they may occur in any sentence."""
    spellings = {source, source.rstrip("/\\")}
    with suppress(ValueError):  # a character that paths cannot have
        spellings.add(os.path.realpath(os.path.expanduser(source)))
    return {path for path in spellings if len(PureWindowsPath(path).parts) > 1}


def _map_strings(content: Any, change: Callable[[str], str]) -> Any:
    """A copy of JSON data with a function applied to every string."""
    if isinstance(content, str):
        return change(content)
    if isinstance(content, dict):
        return {name: _map_strings(value, change) for name, value in content.items()}
    return [_map_strings(value, change) for value in content] if isinstance(content, list) else content
