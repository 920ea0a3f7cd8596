"""The command that makes a study again."""

import shlex
from typing import Any

from ffscope.options.corpus import CorpusOptions
from ffscope.options.fields import OptionField, option_fields
from ffscope.options.search import SearchOptions
from ffscope.stages.registry import stages_in_run
from ffscope.study.folder import Study


def reproduce(study: Study) -> str:
    """The command that makes this study again: every option of `ffscope run` that the study holds a value of."""
    model = study.manifest["model"]
    words = ["ffscope", "run", model["source"] or "MODEL", "--corpus", study.settings["corpus"], "--out", "study"]
    held = {**study.settings, **_held_by_stages(study)}
    kinds = dict.fromkeys([CorpusOptions, SearchOptions, *(kind for row in stages_in_run() for kind in row.options)])
    for field in (field for kind in kinds for field in option_fields(kind)):
        if held.get(field.name) is not None and not field.is_required:
            words += _spelt(field, held[field.name])
    return shlex.join([*words, "--dtype", model["dtype"]])


def _held_by_stages(study: Study) -> dict[str, Any]:
    """What finished stages hold in their own entries of the manifest."""
    entries = study.manifest["stages"]
    held: dict[str, Any] = {}
    for row in stages_in_run():
        if row.stored_options is not None and entries.get(row.name, {}).get("done"):
            held |= row.stored_options(entries[row.name])
    return held


def _spelt(field: OptionField, value: Any) -> list[str]:
    """An option as it is typed; a yes-or-no option only where it is not the default."""
    if isinstance(value, bool):
        on, _, off = field.flag.partition("/")
        return [] if value == field.default else [on if value else off]
    return [field.flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
