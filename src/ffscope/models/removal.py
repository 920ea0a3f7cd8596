"""A model without some of its memories, which transformers loads as it is: a narrower one, or one whose values are 0."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig

from ffscope.axes import Array
from ffscope.errors import InputError, LayoutError, first_line
from ffscope.models.memory_model import MemoryModel
from ffscope.models.placement import named_weights
from ffscope.models.slices import Sliced, sliced_parts
from ffscope.models.widths import Width, find_widths, with_widths

_ALIGNMENT = 16  # bytes: kernels that run all experts at once need rows of a multiple of it


class Remover:
    """Takes memories out of a model. The model itself stays as it is."""

    def __init__(self, model: MemoryModel, *, zero_rows: bool) -> None:
        """With `zero_rows`, widths stay, and the values of removed memories become 0."""
        self.model = model
        self.parts = sliced_parts(model)
        self.dtype = _narrower(model.dtype, _stored_dtype(model.source))
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
        widths = {} if self.zero_rows else self._values(removed)
        skeleton = with_widths(model, widths, self.widths)
        skeleton.generation_config = getattr(model, "generation_config", None)
        try:
            skeleton.load_state_dict(weights, assign=True)
        except RuntimeError as error:
            raise LayoutError(
                f"{type(model).__name__} has other weights of the width of its memories, so these cannot be removed: "
                f"{first_line(error)}. Use --zero-rows, which keeps the width and sets the values of pruned memories to 0."
            ) from error
        skeleton.tie_weights()
        return skeleton.eval()

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

    def _weights(self, removed: Sequence[Array], means: Sequence[Array] | None) -> dict[str, Tensor]:
        """All weights by name, in the precision in which they are written; tied ones stay one tensor."""
        # With the tensor itself, since the memory of one that is gone may be given to another.
        converted: dict[tuple[int, torch.Size], tuple[Tensor, Tensor]] = {}
        weights = {}
        for name, tensor in named_weights(self.model.model):
            at = tensor.data_ptr(), tensor.shape
            if at not in converted:
                converted[at] = tensor, _to(tensor, self.dtype)
            weights[name] = converted[at][1]
        for part in self.parts:
            if means is not None:
                self._keep_means(weights, part, removed, means)
            kept = part.kept(removed[part.layer])
            for piece in part.slices:
                if not self.zero_rows:
                    weights[piece.name] = piece.select(weights[piece.name], kept).contiguous()
                elif piece.is_value:
                    weights[piece.name] = piece.clear(weights[piece.name], kept)
        return weights

    def _keep_means(
        self, weights: dict[str, Tensor], part: Sliced, removed: Sequence[Array], means: Sequence[Array]
    ) -> None:
        mine = slice(part.part.offset, part.part.offset + part.part.memories)
        mean = torch.from_numpy(np.where(removed[part.layer], means[part.layer], 0)[mine])
        if not mean.any():
            return
        if part.bias is None:
            raise LayoutError(
                f"--replace mean needs an output projection with a bias, to which the mean contribution is added; that of layer "
                f"{part.layer} of this {self.model.model_type} has none that is the same for every token. Use --replace zero."
            )
        added = mean.double() @ part.part.values().cpu().double()
        bias = weights[part.bias]
        weights[part.bias] = (bias.cpu().double() + added).to(bias.dtype).to(bias.device)


def _to(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _narrower(dtype: torch.dtype, stored: torch.dtype | None) -> torch.dtype:
    """The precision of the files, if the model was loaded in a wider one: then nothing is lost in it."""
    return stored if stored is not None and stored.itemsize < dtype.itemsize else dtype


def _stored_dtype(source: str) -> torch.dtype | None:
    """The precision in which a model's folder or hub name has its weights, where its config says so."""
    try:
        config = AutoConfig.from_pretrained(source, local_files_only=True) if source else None
    except (OSError, ValueError):  # a .gguf file, a fairseq checkpoint, a folder with its own code
        return None
    dtype = getattr(config, "dtype", None)
    return dtype if isinstance(dtype, torch.dtype) else None
