"""Takes back the last edit of a model: its weights become those of the source, bit by bit."""

from pathlib import Path
from typing import Any

import torch

from ffscope.editing.changes import restore
from ffscope.editing.record import Edited, copy_records, read_originals, write_record
from ffscope.errors import ProofError, SourceError
from ffscope.models.fingerprint import digest_of
from ffscope.models.rewriting import weights_of, with_weights
from ffscope.models.sources import read_model, read_source
from ffscope.models.written import refuse_existing, write_model


def undo(folder: Path | str, out: Path | str, *, trust_remote_code: bool = False) -> Edited:
    """Write the model that an edited one was made from, with the records of the edits that it had; returns the one taken back.

    Its weights are those of the source in the precision of its files, which a digest proves.
    """
    folder, out = Path(folder), Path(out)
    refuse_existing(out)
    edits = Edited.read(folder)
    last, originals = edits[-1], read_originals(folder, edits)
    exact = "float64" if "float64" in (last.dtype, last.source_dtype) else "float32"
    loading: dict[str, Any] = {"device": "cpu", "dtype": exact, "trust_remote_code": trust_remote_code}
    model, tokenizer = read_source(str(folder), **loading)
    restored = _restored(model, last, originals[-1], folder)

    def complete(unfinished: Path) -> None:
        if _digest(read_model(str(unfinished), **loading), last.source_dtype) != last.before:
            raise ProofError(
                "Expected the weights to be read back as they were written; found others. Nothing was kept."
            )
        if edits[:-1]:
            write_record(unfinished, edits[:-1], originals[:-1])
        copy_records(folder, unfinished)

    write_model(restored, tokenizer, out, complete=complete)
    return last


@torch.no_grad()
def _restored(model: Any, edit: Edited, originals: list[Any], folder: Path) -> Any:
    """The model with what the edit replaced; raises if it is not the model that the edit wrote, or gives another one."""
    weights = weights_of(model, getattr(torch, edit.dtype))
    if digest_of(sorted(weights.items())) != edit.after:
        raise SourceError(
            f"The weights in {folder} are not those that the edit wrote, so it cannot be undone there. Expected them unchanged "
            "since; undo the edit before other changes, or use the source that the record names."
        )
    try:
        restore(weights, originals)
    except (KeyError, IndexError, RuntimeError) as error:
        raise _cannot_be_undone(folder) from error
    restored = with_weights(model, weights_of(with_weights(model, weights), getattr(torch, edit.source_dtype)))
    if _digest(restored, edit.source_dtype) != edit.before:
        raise _cannot_be_undone(folder)
    return restored


def _digest(model: Any, dtype: str) -> str:
    return digest_of(sorted(weights_of(model, getattr(torch, dtype)).items()))


def _cannot_be_undone(folder: Path) -> SourceError:
    return SourceError(
        f"The original values that {folder} keeps do not give the weights that the record describes, so the edit cannot be undone. "
        "Use the source that the record names."
    )
