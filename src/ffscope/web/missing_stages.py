"""The stages that a study lacks, and the commands that run them."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from ffscope.stages.registry import stages
from ffscope.study.folder import Study
from ffscope.study.public import folder_name


@dataclass(frozen=True)
class MissingStage:
    """A stage that has not been run: the command, or the reason why it cannot be run."""

    stage: str
    command: str
    why: str | None


def missing_stages(study: Study, names: Iterable[str]) -> list[MissingStage]:
    """Those of `names` that the study lacks, except optional ones."""
    rows = stages()
    folder = shlex.quote(folder_name(study.folder))
    return [
        MissingStage(stage, f"ffscope {stage} {folder}", study.manifest["stages"].get(stage, {}).get("why"))
        for stage in names
        if not (study.has(stage) or rows[stage].optional)
    ]
