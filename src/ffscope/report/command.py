"""The command that reproduces a study."""

import shlex
from typing import Any

from ffscope.options.corpus import CorpusOptions
from ffscope.options.fields import OptionField, option_fields
from ffscope.options.search import SearchOptions
from ffscope.stages.registry import stages_in_run
from ffscope.study.folder import Study


def reproduce(study: Study) -> str:
    """The command that reproduces a study, with every option of `ffscope run` that the study records."""
    model = study.manifest["model"]
    words = ["ffscope", "run", model["source"] or "MODEL", "--corpus", study.settings["corpus"], "--out", "study"]
    recorded = {**study.settings, **_stage_options(study)}
    kinds = dict.fromkeys([CorpusOptions, SearchOptions, *(kind for row in stages_in_run() for kind in row.options)])
    for field in (field for kind in kinds for field in option_fields(kind)):
        if recorded.get(field.name) is not None and not field.is_required:
            words += _words(field, recorded[field.name])
    return shlex.join([*words, "--dtype", model["dtype"]])


def _stage_options(study: Study) -> dict[str, Any]:
    """The options that finished stages record in their entries of the manifest."""
    entries = study.manifest["stages"]
    recorded: dict[str, Any] = {}
    for row in stages_in_run():
        if row.stored_options is not None and entries.get(row.name, {}).get("done"):
            recorded |= row.stored_options(entries[row.name])
    return recorded


def _words(field: OptionField, value: Any) -> list[str]:
    """An option as typed; a flag only if it is not the default."""
    if isinstance(value, bool):
        on, _, off = field.flag.partition("/")
        return [] if value == field.default else [on if value else off]
    return [field.flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
