"""For each memory of one model, the memory of another whose coefficients correlate most with its own, over all layers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ffscope.axes import Array, Float, Int
from ffscope.comparison.coefficients import coefficients
from ffscope.comparison.moments import Moments
from ffscope.comparison.rotation import Rotation
from ffscope.models.memory_model import MemoryModel
from ffscope.search.text_pass import TextBatch
from ffscope.study.resumable import ResumableFolder

_CELLS = 2**28  # numbers of a matrix of correlations that is held at once, on a CPU
_FREE = 1 / 4  # the share of a GPU's free memory that it may take


class Partners(NamedTuple):
    """Of every memory of the model after: its partner's number among all memories (-1 for none), and the highest correlation with
    a random direction (NaN for none)."""

    partner: Int[Array, "memory"]
    baseline: Float[Array, "memory"]


@dataclass(frozen=True)
class Search:
    """What a search for partners needs: the two models, their moments over the batches, and those of the random directions."""

    before: MemoryModel
    after: MemoryModel
    moments_before: Moments
    moments_after: Moments
    moments_rotated: Moments
    batches: Sequence[TextBatch]
    bos: int | None
    rotation: Rotation

    def panel(self, rows: range, report: Callable[[int], None]) -> dict[str, Tensor]:
        """The partners of some consecutive memories of the model after, from one pass of both models over the batches."""
        device = self.after.device
        ends = np.cumsum(self.after.memories)
        first, last = np.searchsorted(ends, [rows.start, rows.stop - 1], side="right").tolist()
        skipped = rows.start - (int(ends[first - 1]) if first else 0)
        scale_after, scale_before = (_scaling(moments, device) for moments in (self.moments_after, self.moments_before))
        scale_after = scale_after[0][rows.start : rows.stop], scale_after[1][rows.start : rows.stop]
        products = torch.zeros(len(rows), sum(self.before.memories), device=device)
        for batch in self.batches:
            after = coefficients(self.after, batch.tokens, self.bos, layers=range(first, last + 1))
            after = _standardised(after[:, skipped : skipped + len(rows)], *scale_after)
            before = coefficients(self.before, batch.tokens, self.bos).to(device)
            products.addmm_(after.T, _standardised(before, *scale_before))
            report(batch.tokens.size)
        return self._highest(products / sum(batch.tokens.size for batch in self.batches), rows)

    def _highest(self, correlations: Float[Tensor, "some memory"], rows: range) -> dict[str, Tensor]:
        device = correlations.device
        deviation, of_rotated = (
            torch.from_numpy(moments.deviation).float().to(device)
            for moments in (self.moments_before, self.moments_rotated)
        )
        baseline = torch.full((len(correlations),), -torch.inf, device=device)
        for at, covariances in self.rotation.blocks(correlations * deviation):
            along = covariances * _inverse(of_rotated[at])
            baseline = torch.maximum(baseline, along.masked_fill_(of_rotated[at] == 0, -torch.inf).amax(1))
        correlations.masked_fill_(deviation == 0, -torch.inf)
        partner = correlations.argmax(1)  # the first of equal ones
        constant = torch.from_numpy(self.moments_after.deviation[rows.start : rows.stop] == 0).to(device)
        missing = constant | bool((deviation == 0).all())
        return {
            "partner": partner.masked_fill(missing, -1).cpu(),
            "baseline": baseline.clamp(-1, 1).masked_fill(constant | baseline.isinf(), torch.nan).cpu(),
        }


def find_partners(
    search: Search, folder: ResumableFolder, report: Callable[[int, int], None], cells: int | None = None
) -> Partners:
    """The partners of all memories, panel by panel; finished panels are kept in the folder.

    `report` is called with the number of tokens that are done, and that of all. `cells` limits the size of a panel.
    """
    panels = list(_panels(search.after.memories, sum(search.before.memories), cells or _room(search.after.device)))
    files = {f"partners-{rows.start:09}-{rows.stop:09}.safetensors": rows for rows in panels}
    missing = folder.missing(files)
    tokens = sum(batch.tokens.size for batch in search.batches)
    done, total = tokens * (len(files) - len(missing)), tokens * len(files)

    def count(more: int) -> None:
        nonlocal done
        done += more
        report(done, total)

    report(done, total)
    for name in missing:
        columns = search.panel(files[name], count)
        with folder.writing(name) as path:
            save_file({key: tensor.contiguous() for key, tensor in columns.items()}, path)
    states = [load_file(folder.path(name)) for name in files]
    return Partners(*(torch.cat([state[name] for state in states]).numpy() for name in Partners._fields))


def _panels(memories: Sequence[int], others: int, cells: int) -> list[range]:
    """All memories in consecutive groups: whole layers, as many as fit, or parts of a layer that does not fit."""
    room, panels, start, end = max(1, cells // others), list[range](), 0, 0
    for count in memories:
        if end > start and end + count - start > room:
            panels.append(range(start, end))
            start = end
        end += count
        while end - start > room:
            panels.append(range(start, start + room))
            start += room
    return [*panels, range(start, end)] if end > start else panels


def _room(device: torch.device) -> int:
    if device.type != "cuda":
        return _CELLS
    free, _ = torch.cuda.mem_get_info(device)
    return max(_CELLS, int(free * _FREE) // 4)


def _scaling(moments: Moments, device: torch.device) -> tuple[Tensor, Tensor]:
    """The means, and the inverse standard deviations: 0 for a constant coefficient."""
    mean, deviation = (torch.from_numpy(array).to(device) for array in (moments.mean, moments.deviation))
    return mean.float(), _inverse(deviation).float()


def _inverse(deviation: Tensor) -> Tensor:
    return torch.where(deviation > 0, 1 / deviation, 0.0)


def _standardised(numbers: Tensor, mean: Tensor, inverse: Tensor) -> Tensor:
    return (numbers - mean) * inverse
