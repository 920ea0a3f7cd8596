"""What an edit changes on held-out text: the loss, the predictions, and how many became a token."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from pathlib import Path
from typing import NamedTuple

import torch

from ffscope.editing.record import SideEffects
from ffscope.effects.estimated import mean_interval
from ffscope.effects.held_out import HeldOutBatch, held_out_batches, predictions_of
from ffscope.errors import CoefficientError, LensError
from ffscope.models.fingerprint import manifest_entry
from ffscope.models.info import describe
from ffscope.models.memory_model import MemoryModel
from ffscope.options.edit import WrittenOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.pruning.curves import perplexity_of
from ffscope.search.passes import bos_of
from ffscope.study.folder import Study

PREFIXES = WrittenOptions.prefixes


class HeldOutText(NamedTuple):
    """The held-out text of a study, in batches, and the token before every sentence."""

    batches: list[HeldOutBatch]
    bos: int | None


def read_held_out(study: Study | Path | str, model: MemoryModel, prefixes: int) -> HeldOutText:
    """About `prefixes` held-out prefixes of a study of the model; raises for a study of another model, or one without logits."""
    study = study if isinstance(study, Study) else Study.open(study)
    study.refuse_other_model(manifest_entry(model))
    info = describe(model)
    if info.no_lens is not None:
        raise LensError(f"{info.no_lens} Without logits there is no loss. Leave out the study.")
    study.need("sentences")
    return HeldOutText(held_out_batches(study, info, prefixes), bos_of(study, info))


def side_effects(
    text: HeldOutText,
    model: MemoryModel,
    after: MemoryModel,
    edited: Callable[[], AbstractContextManager[None]] = nullcontext,
    *,
    token: int | None = None,
    progress: ProgressCallback = no_progress,
) -> SideEffects:
    """The held-out text read by a model, and by another one or by itself with an edit."""
    total = sum(len(batch.targets) for batch in text.batches)
    sums = torch.zeros(6, dtype=torch.float64)
    done = 0
    for batch in text.batches:
        before = predictions_of(model, batch, text.bos)
        with edited():
            now = predictions_of(after, batch, text.bos)
        change = (now.loss - before.loss).double()
        changed = before.prediction != now.prediction
        became = changed & (now.prediction == token) if token is not None else torch.zeros_like(changed)
        numbers = (before.loss.double(), now.loss.double(), change, change.square(), changed, became)
        sums += torch.stack([row.sum().double().cpu() for row in numbers])
        done += len(batch.targets)
        progress(Progress("side effects", done, total, unit="held-out prefixes"))
    return _summary(sums, total, became=token is not None)


def _summary(sums: torch.Tensor, count: int, *, became: bool) -> SideEffects:
    loss_before, loss_after = (sums[:2] / count).tolist()
    if not isfinite(perplexity_of(loss_before) + perplexity_of(loss_after)):
        raise CoefficientError(
            f"Expected a finite loss on held-out text; found {loss_before:.4g} before the edit and {loss_after:.4g} after it. "
            "Choose smaller factors, or leave out the study."
        )
    low, high = mean_interval(sums[2:3], sums[3:4], count)
    return SideEffects(
        prefixes=count,
        loss_before=loss_before,
        loss_after=loss_after,
        change_low=float(low[0]),
        change_high=float(high[0]),
        perplexity_before=perplexity_of(loss_before),
        perplexity_after=perplexity_of(loss_after),
        predictions_changed=float(sums[4]) / count,
        became=float(sums[5]) / count if became else None,
    )
