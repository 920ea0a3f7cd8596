"""The base class of learned lenses: an affine map per layer and state, then the model's own head."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.errors import LensError
from ffscope.models.families import Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.lenses.base import Lens, State
from ffscope.models.lenses.learned import lens_file
from ffscope.models.lenses.norm import NormLens
from ffscope.models.unembedding import Unembedding


class Translator(NamedTuple):
    """An affine map from a state of a layer to what the last output is expected to be: weight · state + bias."""

    weight: Float[Tensor, "hidden hidden"]
    bias: Float[Tensor, "hidden"]


Key = tuple[State, int]
"""The state of a layer that a translator is for. A state without one is read as it is, such as the output of the last layer."""


def tensor_names(of: State, layer: int) -> tuple[str, str]:
    """The names of a translator's weight and bias in a file."""
    return f"{of}.{layer}.weight", f"{of}.{layer}.bias"


def translator_tensors(translators: Mapping[Key, Translator]) -> dict[str, Tensor]:
    """Translators as the tensors of a file."""
    tensors: dict[str, Tensor] = {}
    for (of, layer), translator in translators.items():
        tensors |= dict(zip(tensor_names(of, layer), (tensor.contiguous() for tensor in translator), strict=True))
    return tensors


class AffineLens(NormLens):
    """Reads a translated state as the model reads its last output, and an update through the matrix of its layer's output.

    An update is a term of the output, so what it adds to the translated output is that matrix times the update.
    """

    def __init__(
        self, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward], study: Path | None
    ) -> None:
        super().__init__(model, top, unembedding, layers)
        self.study = study
        self._translators: dict[Key, Translator | None] = {}
        if study is not None:
            self._check_file(lens_file(study, self.name))

    @classmethod
    def for_model(
        cls, model: Any, top: Top, unembedding: Unembedding, layers: Sequence[FeedForward], study: Path | None
    ) -> "AffineLens":
        return cls(model, top, unembedding, layers, study)

    def _check_file(self, path: Path) -> None:
        """Raise if a file is not of this model's shape."""
        last = len(self.layers) - 1
        with safe_open(path, "pt") as file:
            names = set(file.keys())
            name, _ = tensor_names("residual", last)
            shape = file.get_slice(name).get_shape() if name in names else None
        if shape != [self.hidden, self.hidden] or tensor_names("output", last)[0] in names:
            raise LensError(
                f"{path} is not a lens of this model: expected a matrix of {self.hidden} × {self.hidden} for the residual of layer "
                f"{last}, the last one; found {shape or 'none'}. Learn it again with `ffscope lens`."
            )

    def translator(self, of: State, layer: int) -> Translator | None:
        """The translator of a state of a layer, on the device of the unembedding; None if the state is read as it is."""
        key = of, layer
        if key not in self._translators:
            self._translators[key] = self._read(of, layer)
        return self._translators[key]

    def _read(self, of: State, layer: int) -> Translator | None:
        assert self.study is not None
        with safe_open(lens_file(self.study, self.name), "pt", device=str(self.unembedding.device)) as file:
            names = tensor_names(of, layer)
            return Translator(*map(file.get_tensor, names)) if names[0] in file.keys() else None  # noqa: SIM118

    def translate(self, states: Float[Tensor, "*at hidden"], layer: int, of: State) -> Float[Tensor, "*at hidden"]:
        """States in the space of the last output, in float32 at least."""
        translator = self.translator(of, layer)
        if translator is None:
            return states
        return torch.nn.functional.linear(_for(states, translator.weight), translator.weight, translator.bias)

    @torch.no_grad()
    def states(
        self, states: Float[Tensor, "*at hidden"], layer: int, of: State = "residual"
    ) -> Float[Tensor, "*at vocab"]:
        return self.logits(self.translate(states, layer, of))

    @torch.no_grad()
    def state_tops(self, states: Float[Tensor, "n hidden"], layer: int, of: State = "residual") -> Int[Tensor, "n"]:
        return Lens.state_tops(self, states, layer, of)  # the shortcut of the norm lens reads states as they are

    def _direction(self, updates: Tensor, layer: int | None = None) -> Tensor:
        translator = None if layer is None else self.translator("output", layer)
        if translator is not None:
            updates = _for(updates, translator.weight) @ translator.weight.T
        return super()._direction(updates)


def _for(states: Tensor, weight: Tensor) -> Tensor:
    return states.to(weight.device, weight.dtype)
