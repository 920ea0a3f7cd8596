"""A search that was begun, kept on the disk so that it can be resumed.

One file holds both the note and the state: they must never be of two different moments.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ffscope.errors import StudyError
from ffscope.study.folder import Study

NAME = "triggers.checkpoint"
_FORMAT = 2  # goes up when what a state holds changes


def save(study: Study, state: dict[str, Tensor], note: dict[str, Any]) -> None:
    """Put what a search has so far, and a note on how far it is, into the study."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in state.items()}
    with study.replacing(NAME) as path:
        try:
            save_file(tensors, path, metadata={"note": json.dumps({"format": _FORMAT, **note})})
        except SafetensorError as error:  # what the disk said is only in its words
            raise OSError(28 if "No space" in str(error) else 5, str(error)) from error


def read_note(study: Study) -> dict[str, Any] | None:
    """The note of a search that was begun; None where there is none."""
    path = study.path(NAME)
    if not path.is_file():
        return None
    with _opened(path) as file:
        note = json.loads(file.metadata()["note"])
    if note.get("format") != _FORMAT:
        raise StudyError(
            f"{path} was left by another version of ffscope, and this one cannot resume its search. Finish it with that "
            f"version, or remove {NAME} to begin the search anew."
        )
    return note


def load(study: Study) -> dict[str, Tensor]:
    """What a search had when it left the study's checkpoint."""
    with _opened(study.path(NAME)) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)


def discard(study: Study) -> None:
    """Forget a search that is finished."""
    study.path(NAME).unlink(missing_ok=True)


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except SafetensorError as error:
        raise StudyError(f"{path} cannot be read: {error}. Remove it to begin the search anew.") from error
