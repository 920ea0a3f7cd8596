"""The record of an edit beside the weights: what was changed and measured, and what is needed to undo it."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from shutil import copyfile
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from ffscope.errors import SourceError, first_line
from ffscope.tokens import visible

RECORD, ROWS = "ffscope-edit.json", "ffscope-edit.safetensors"
_KEPT = ("ffscope-prune.json",)  # records of a source that also hold for a model with other values
_EXACT = 1e-6  # more is the rounding of half precision
_ROW = re.compile(r'\{\s+("memory": "\S+",)\s+("factor": \S+,)\s+("addend": \S+)\s+\}')
_AT, _ROWS = "memories", "rows"


@dataclass(frozen=True)
class EditedMemory:
    """A memory whose coefficient became factor × coefficient + addend."""

    memory: str
    factor: float
    addend: float


@dataclass(frozen=True)
class EditedWeight:
    """A weight that was changed: an axis over memories, or all of it if `axis` is None. Its original is in the file of rows."""

    name: str
    axis: int | None


@dataclass(frozen=True)
class SideEffects:
    """What an edit changes on held-out text. `became` is the share of predictions that became the promoted token."""

    prefixes: int
    loss_before: float
    loss_after: float
    change_low: float  # of the 95 % interval of the change of the loss over prefixes
    change_high: float
    perplexity_before: float
    perplexity_after: float
    predictions_changed: float
    became: float | None


@dataclass(frozen=True)
class Promoted:
    """What an edit was made for: that a token is the prediction after a text."""

    text: str
    token: str
    id: int
    position: int = -1  # after which it is predicted
    bos: bool = True  # whether BOS is put before the text


@dataclass(frozen=True)
class Edited:
    """An edit that was written into weights. In the folder, ffscope-edit.json has it, after those that its source had."""

    source: str
    fingerprint: str  # of the source as it was loaded
    source_dtype: str  # the precision of its files
    dtype: str  # the precision in which it was written
    memories: tuple[EditedMemory, ...]
    weights: tuple[EditedWeight, ...]
    before: str  # a digest of all weights in source_dtype
    after: str  # and of the edited ones in dtype
    rounding: float  # the largest relative error of a layer's new values or bias from rounding them to dtype
    error: float  # the largest relative error of the logits, compared with the source edited live
    promoted: Promoted | None = None
    side_effects: SideEffects | None = None

    @classmethod
    def read(cls, folder: Path | str) -> "tuple[Edited, ...]":
        """The edits of a model, the first one first."""
        file = Path(folder) / RECORD
        try:
            edits = tuple(_edited(entry) for entry in json.loads(file.read_text(encoding="utf-8"))["edits"])
            if not edits:
                raise ValueError("it lists no edit")
            return edits
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SourceError(
                f"{folder} has no {RECORD} that can be read ({first_line(error)}). Expected a folder written by `ffscope edit`."
            ) from error

    def __str__(self) -> str:
        count = len(self.memories)
        what = f"{count:,} {'memory' if count == 1 else 'memories'} edited"
        rounded = (
            f", the changed values rounded to {self.dtype} (--full-precision keeps them exact)"
            if self._is_rounded
            else ""
        )
        equal = (
            "exactly those of the source edited live"
            if self.error == 0
            else f"those of the source edited live to {self.error:.1g}"
        )
        words = f"{what}. Predictions are {equal}{rounded}."
        return f"{words} {side_effects_in_words(self.side_effects)}"

    @property
    def _is_rounded(self) -> bool:
        return self.rounding > _EXACT


def side_effects_in_words(effects: SideEffects | None) -> str:
    """The side effects in a few sentences."""
    if effects is None:
        return "Side effects were not measured: name a study of the model with --study."
    words = (
        f"Held-out perplexity {effects.perplexity_before:.4g} → {effects.perplexity_after:.4g}; "
        f"{effects.predictions_changed:.2%} of {effects.prefixes:,} predictions changed"
    )
    return f"{words}, {effects.became:.2%} became the token." if effects.became is not None else f"{words}."


def _edited(entry: dict[str, Any]) -> Edited:
    promoted, effects = entry.get("promoted"), entry.get("side_effects")
    values = {
        **entry,
        "memories": tuple(EditedMemory(**row) for row in entry["memories"]),
        "weights": tuple(EditedWeight(**row) for row in entry["weights"]),
        "promoted": None if promoted is None else Promoted(**promoted),
        "side_effects": None if effects is None else SideEffects(**effects),
    }
    return Edited(**values)


@dataclass(frozen=True)
class Original:
    """The original of a changed weight: the values of some memories, or all of a bias if `memories` is None."""

    weight: EditedWeight
    memories: Tensor | None
    rows: Tensor


def write_record(folder: Path, edits: Sequence[Edited], originals: Sequence[Sequence[Original]]) -> None:
    """Write the edits of a model and the originals of what each changed."""
    text = json.dumps({"edits": [asdict(edit) for edit in edits]}, indent=1, ensure_ascii=False)
    (folder / RECORD).write_text(_ROW.sub(r"{\1 \2 \3}", text) + "\n", encoding="utf-8")
    tensors: dict[str, Tensor] = {}
    for number, of_edit in enumerate(originals):
        for place, original in enumerate(of_edit):
            tensors[f"{number}.{place}.{_ROWS}"] = original.rows.cpu().contiguous()
            if original.memories is not None:
                tensors[f"{number}.{place}.{_AT}"] = original.memories.cpu().contiguous()
    save_file(tensors, folder / ROWS)


def copy_records(source: Path, folder: Path) -> None:
    """Copy the records of other commands that also hold for an edited model."""
    for name in _KEPT:
        if (source / name).is_file():
            copyfile(source / name, folder / name)


def read_originals(folder: Path, edits: Sequence[Edited]) -> list[list[Original]]:
    """The originals of what each edit of a model changed."""
    try:
        tensors = load_file(folder / ROWS)
        return [
            [
                Original(weight, tensors.get(f"{number}.{place}.{_AT}"), tensors[f"{number}.{place}.{_ROWS}"])
                for place, weight in enumerate(edit.weights)
            ]
            for number, edit in enumerate(edits)
        ]
    except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
        raise SourceError(
            f"The original values in {folder / ROWS} cannot be read ({visible(first_line(error))}), so the edit cannot be undone. "
            "Use the source that the record names."
        ) from error
