"""What a study does not have yet, and the command that makes it."""

import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from ffscope.study.folder import Study
from ffscope.study.public import folder_name


@dataclass(frozen=True)
class Missing:
    """A stage that was not done: how to do it, or why it cannot be."""

    stage: str
    command: str
    why: str | None


def missing(study: Study, stages: Iterable[str]) -> list[Missing]:
    """Those of some stages that are not there."""
    folder = shlex.quote(folder_name(study.folder))
    return [
        Missing(stage, f"ffscope {stage} {folder}", study.manifest["stages"].get(stage, {}).get("why"))
        for stage in stages
        if not study.has(stage)
    ]
