"""The checkpoint of an unfinished search.

One file has both the state and the note on progress, so that the two are always consistent.
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
SHARDS = "triggers.shards"  # the note of a search whose shards lie on storage
_FORMAT = 3  # increases when the content of a state changes


def save(study: Study, state: dict[str, Tensor], note: dict[str, Any]) -> None:
    """Write the state of a search, with a note on its progress, into the study."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in state.items()}
    with study.replacing(NAME) as path:
        try:
            save_file(tensors, path, metadata={"note": json.dumps({"format": _FORMAT, **note})})
        except SafetensorError as error:  # the OS error is only in its message
            raise OSError(28 if "No space" in str(error) else 5, str(error)) from error


def read_note(study: Study) -> dict[str, Any] | None:
    """The note of the checkpoint; None if there is no checkpoint."""
    path = study.path(NAME)
    if not path.is_file():
        return None
    with _open(path) as file:
        note = json.loads(file.metadata()["note"])
    if note.get("format") != _FORMAT:
        raise StudyError(
            f"{path} was written by another version of ffscope, so this one cannot resume the search. Resume it with that "
            f"version, or delete {NAME} to restart the search."
        )
    return {"file": NAME, **note}


def refuse_other(study: Study, file: str, engine: str) -> None:
    """Raise if another engine has an unfinished search in the study, which this one could not resume."""
    if study.path(file).is_file():
        raise StudyError(
            f"{study.folder} has an unfinished search of --engine {engine}. Resume it with that engine, or delete {file} there to "
            "restart the search."
        )


def load(study: Study) -> dict[str, Tensor]:
    """The state in the study's checkpoint."""
    with _open(study.path(NAME)) as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)


def discard(study: Study) -> None:
    """Delete the checkpoint of a finished search."""
    study.path(NAME).unlink(missing_ok=True)


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except SafetensorError as error:
        raise StudyError(f"{path} cannot be read: {error}. Delete it to restart the search.") from error
