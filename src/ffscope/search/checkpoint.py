"""A search that was begun, kept on the disk so that it can be gone on with."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ffscope.errors import StudyError
from ffscope.search.execute import Search
from ffscope.study.folder import Study

NAME = "triggers.checkpoint"


def save(study: Study, search: Search, note: dict[str, Any]) -> None:
    """Put what a search has so far, and a note on how far it is, into the study."""
    tensors = {name: tensor.cpu().contiguous() for name, tensor in search.listener.state().items()}
    with study.replacing(NAME) as path:
        try:
            save_file(tensors, path, metadata={"note": json.dumps(note)})
        except SafetensorError as error:  # what the disk said is only in its words
            raise OSError(28 if "No space" in str(error) else 5, str(error)) from error


def read_note(study: Study) -> dict[str, Any] | None:
    """The note of a search that was begun; None where there is none."""
    path = study.path(NAME)
    if not path.is_file():
        return None
    with _opened(path) as file:
        return json.loads(file.metadata()["note"])


def load(study: Study, search: Search) -> None:
    """Have a search go on from where the study's checkpoint left it."""
    with _opened(study.path(NAME)) as file:
        search.listener.load({name: file.get_tensor(name) for name in search.listener.state()})


def discard(study: Study) -> None:
    """Forget a search that is finished."""
    study.path(NAME).unlink(missing_ok=True)


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except SafetensorError as error:
        raise StudyError(f"{path} cannot be read: {error}. Remove it to begin the search anew.") from error


__all__ = ["NAME", "discard", "load", "read_note", "save"]
