"""A model without some of its memories, which transformers loads as it is: a narrower one, or one whose values are 0."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ffscope.axes import Array
from ffscope.errors import InputError, LayoutError, first_line
from ffscope.models.memory_model import MemoryModel
from ffscope.models.rewriting import Weights, add_to_bias, precision_of_files, scale_values, weights_of, with_weights
from ffscope.models.slices import sliced_parts
from ffscope.models.widths import Width, find_widths

_ALIGNMENT = 16  # bytes: kernels that run all experts at once need rows of a multiple of it


class Remover:
    """Takes memories out of a model. The model itself stays as it is."""

    def __init__(self, model: MemoryModel, *, zero_rows: bool) -> None:
        """With `zero_rows`, widths stay, and the values of removed memories become 0."""
        self.model = model
        self.parts = sliced_parts(model)
        self.dtype = precision_of_files(model)
        self.widths: list[Width] = [] if zero_rows else find_widths(model.model, self.parts)
        self.zero_rows = zero_rows

    def lowest(self, ranks: Sequence[Array], share: float) -> tuple[Array, ...]:
        """For each layer, the mask of its memories with the lowest ranks: this share of them, or of those of each expert.

        All parts whose width is set by one attribute lose as many, so that the share is rounded for each width.
        """
        removed = [np.zeros(len(row), dtype=bool) for row in ranks]
        for part, count in zip(self.parts, self._counts(share), strict=True):
            start, layer = part.part.offset, part.layer
            here = ranks[layer][start : start + part.part.memories].reshape(part.experts, part.width)
            first = np.argsort(here, axis=1, kind="stable")[:, :count]
            removed[layer][(start + np.arange(part.experts)[:, None] * part.width + first).ravel()] = True
        return tuple(removed)

    def _counts(self, share: float) -> list[int]:
        """How many memories each part loses, of each expert."""
        if self.zero_rows:
            return [round(share * part.width) for part in self.parts]
        counts = [0] * len(self.parts)
        for width in self.widths:
            lost = self._lost(width, share)
            for number, factor in width.factors.items():
                counts[number] = factor * lost
        return counts

    def _lost(self, width: Width, share: float) -> int:
        """By how much the value of a width falls."""
        experts = any(self.parts[number].experts > 1 for number in width.factors)
        unit = _ALIGNMENT // self.dtype.itemsize if experts else 1
        unit = unit if width.value % unit == 0 else 1
        lost = unit * round(share * width.value / unit)
        if lost >= width.value:
            raise InputError(
                f"A share of {share:g} removes all of the {width.value} memories that {width.attribute} stands for. "
                "Choose a smaller one."
            )
        return lost

    @torch.no_grad()
    def remove(self, removed: Sequence[Array], means: Sequence[Array] | None = None) -> Any:
        """The model without the memories of the masks; `means` are the coefficients whose contribution stays, in the biases."""
        weights = self._weights(removed, means)
        model = self.model.model
        try:
            if self.zero_rows:
                return with_weights(model, weights)
            return with_weights(model, weights, self._values(removed), self.widths)
        except RuntimeError as error:
            raise LayoutError(
                f"{type(model).__name__} has other weights of the width of its memories, so these cannot be removed: "
                f"{first_line(error)}. Use --zero-rows, which keeps the width and sets the values of pruned memories to 0."
            ) from error

    def _values(self, removed: Sequence[Array]) -> dict[str, int]:
        """The value of each width, which all of its parts must agree on."""
        values = {}
        for width in self.widths:
            lost = {
                (part.width - len(row)) / factor
                for number, factor in width.factors.items()
                for part in [self.parts[number]]
                for row in part.kept(removed[part.layer])
            }
            if len(lost) != 1 or not (fall := lost.pop()).is_integer():
                raise InputError(
                    f"Expected as many memories removed from every layer whose width is {width.attribute}; found different "
                    "numbers. Remove equally many, or use --zero-rows."
                )
            values[width.attribute] = width.value - int(fall)
        return values

    def _weights(self, removed: Sequence[Array], means: Sequence[Array] | None) -> Weights:
        """All weights by name, in the precision in which they are written; tied ones stay one tensor."""
        weights = weights_of(self.model.model, self.dtype)
        for part in self.parts:
            kept = part.kept(removed[part.layer])
            gone = torch.from_numpy(part.mine(removed[part.layer]).nonzero()[0])
            if means is not None and len(gone):
                mean = torch.from_numpy(part.mine(means[part.layer]))[gone]
                if mean.any():
                    add_to_bias(weights, part, gone, mean, option="--replace mean", instead="Use --replace zero.")
            if self.zero_rows:
                scale_values(weights, part, gone, torch.zeros(len(gone)))
                continue
            for piece in part.slices:
                weights[piece.name] = piece.select(weights[piece.name], kept).contiguous()
        return weights
