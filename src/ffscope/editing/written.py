"""Writes an edit of memories into a model's weights, loads them again, and compares them with the same edit made live."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ffscope.editing.changes import Changes, as_if_all_fired, by_part, listed, live, parse
from ffscope.editing.record import (
    RECORD,
    Edited,
    Original,
    Promoted,
    copy_records,
    read_originals,
    write_record,
)
from ffscope.editing.side_effects import PREFIXES, HeldOutText, read_held_out, side_effects
from ffscope.errors import LayoutError, ProofError, SourceError, first_line
from ffscope.models.edits import Names
from ffscope.models.fingerprint import digest_of, fingerprint
from ffscope.models.memory_model import MemoryModel
from ffscope.models.ranking import top
from ffscope.models.rewriting import Weights, precision_of_files, weights_of, with_weights
from ffscope.models.written import error_of_written, largest_error, load_written, refuse_existing, write_model
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.study.folder import Study


def edit(
    model: MemoryModel,
    out: Path | str,
    *,
    zero: Names = (),
    scale: Mapping[str, float] | None = None,
    set: Mapping[str, float] | None = None,
    full_precision: bool = False,
    study: Study | Path | str | None = None,
    prefixes: int = PREFIXES,
    promoted: Promoted | None = None,
    progress: ProgressCallback = no_progress,
) -> Edited:
    """Write `model.edit(zero=…, scale=…, set=…)` into the weights, as a folder that transformers loads, with a record beside them.

    The folder appears once it was loaded again and gives the predictions of the model edited live. Weights keep the precision of
    the source's files, or with `full_precision` are not rounded. With a study of the model, the side effects are measured on about
    `prefixes` prefixes of its held-out text. `promoted` is recorded: what the edit was made for.
    """
    folder = Path(out)
    refuse_existing(folder)
    changes = parse(model, zero, scale, set)
    text = None if study is None else read_held_out(study, model, prefixes)
    return _Writer(model, changes, text, promoted, progress).write(folder, full_precision=full_precision)


@dataclass(frozen=True)
class _Draft:
    """An edit as it is written, before it is compared."""

    record: Edited
    originals: list[Original]
    weights: Weights


class _Writer:
    def __init__(
        self,
        model: MemoryModel,
        changes: Changes,
        text: HeldOutText | None,
        promoted: Promoted | None,
        progress: ProgressCallback,
    ) -> None:
        self.model, self.changes, self.text, self.promoted, self.progress = model, changes, text, promoted, progress

    def write(self, folder: Path, *, full_precision: bool) -> Edited:
        self._report(0)
        draft = self._make(full_precision=full_precision)
        earlier = _earlier(self.model, draft.record)
        skeleton = with_weights(self.model.model, draft.weights)
        edits: list[Edited] = []
        self._report(1)

        def complete(unfinished: Path) -> None:
            self._report(2)
            record = self._measure(unfinished, draft)
            edits.append(record)
            write_record(unfinished, [*earlier.edits, record], [*earlier.originals, draft.originals])
            if self.model.source:
                copy_records(Path(self.model.source), unfinished)

        write_model(skeleton, self.model.tokenizer, folder, complete=complete)
        self._report(3)
        return edits[0]

    def _report(self, done: int) -> None:
        self.progress(Progress("edit", done, 3, unit="steps (change, write, compare)"))

    @torch.no_grad()
    def _make(self, *, full_precision: bool) -> _Draft:
        source_dtype = precision_of_files(self.model)
        dtype = torch.float32 if full_precision and source_dtype.itemsize < 4 else source_dtype
        weights = weights_of(self.model.model, source_dtype)
        before = digest_of(sorted(weights.items()))
        parts = by_part(self.model, self.changes)
        originals = [original for part in parts for original in part.originals(weights)]
        if dtype != source_dtype:
            weights = weights_of(self.model.model, dtype)
        rounding = max(part.apply(weights) for part in parts)
        record = Edited(
            source=self.model.source,
            fingerprint=fingerprint(self.model.model),
            source_dtype=_name(source_dtype),
            dtype=_name(dtype),
            memories=listed(self.changes),
            weights=tuple(original.weight for original in originals),
            before=before,
            after=digest_of(sorted(weights.items())),
            rounding=rounding,
            error=0.0,
            promoted=self.promoted,
        )
        return _Draft(record, originals, weights)

    def _measure(self, folder: Path, draft: _Draft) -> Edited:
        """The complete record; ProofError if the folder is not the model with the edit."""
        dtype = getattr(torch, draft.record.dtype)
        try:
            written = load_written(folder, self.model, max(dtype, self.model.dtype, key=lambda kind: kind.itemsize))
        except LayoutError as unreadable:  # the source's layout was proven
            raise ProofError(
                f"The model with this edit cannot be read as key–value memories: {first_line(unreadable)}. Nothing was kept. "
                "Choose smaller factors."
            ) from unreadable
        if digest_of(sorted(weights_of(written.model, dtype).items())) != draft.record.after:
            raise ProofError(
                "Expected the written weights to be read back as they are; found others. Nothing was kept. Report this model."
            )
        model, changes = self.model, self.changes
        fired = (as_if_all_fired(model, changes, written=False), as_if_all_fired(written, changes, written=True))
        errors = (error_of_written(written, model, live(model, changes)), error_of_written(written, model, *fired))
        error = float(np.max(errors))  # NaN if one is
        limit = largest_error(model.dtype, dtype if draft.record.rounding else None)
        if not error <= limit:
            raise ProofError(
                f"The written model differs from the model edited live: expected a relative error of at most {limit:.0e}, found "
                f"{error:.1e}. Nothing was kept. Choose smaller factors, or load the model in float32."
            )
        self._check_promoted(written, draft.record.dtype)
        token = None if self.promoted is None else self.promoted.id
        effects = self.text and side_effects(self.text, self.model, written, token=token, progress=self.progress)
        return replace(draft.record, error=error, side_effects=effects)

    def _check_promoted(self, written: MemoryModel, dtype: str) -> None:
        """Raise if the written model does not predict the token that the edit was made for."""
        wanted = self.promoted
        if wanted is None:
            return
        logits = written.trace(wanted.text, bos=wanted.bos, layers=[written.layers - 1]).logits
        assert logits is not None
        if int(top(logits[0, wanted.position])) != wanted.id:
            raise ProofError(
                f"Rounded to {dtype}, in which the weights are written, the edit does not make {wanted.token!r} the prediction. "
                "Nothing was kept. Use --full-precision."
            )


@dataclass(frozen=True)
class _Earlier:
    """The edits that the source has already."""

    edits: Sequence[Edited] = ()
    originals: Sequence[list[Original]] = ()


def _earlier(model: MemoryModel, record: Edited) -> _Earlier:
    folder = Path(model.source)
    if not model.source or not (folder / RECORD).is_file():
        return _Earlier()
    edits = Edited.read(folder)
    if edits[-1].after != record.before:
        raise SourceError(
            f"{folder / RECORD} describes other weights than those that were loaded in {record.source_dtype}. Load the model in "
            f"the precision in which it was written, {edits[-1].dtype}; or if its weights were changed since, move the record away."
        )
    return _Earlier(edits, read_originals(folder, edits))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
