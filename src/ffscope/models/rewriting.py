"""A model's weights by name, changed, as a model that can be saved; and its values and biases, changed memory by memory."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig

from ffscope.axes import Float, Int
from ffscope.errors import InputError, LayoutError
from ffscope.models.memory_model import MemoryModel
from ffscope.models.placement import named_weights
from ffscope.models.slices import Sliced
from ffscope.models.tolerance import relative_error
from ffscope.models.widths import Width, with_widths

Weights = dict[str, Tensor]
"""The entries of a model's state dict by name. Tied ones are one tensor."""


def weights_of(model: Any, dtype: torch.dtype) -> Weights:
    """All weights of a model in a precision, except those to which it would do harm."""
    # With the tensor itself, since the memory of one that is gone may be given to another.
    converted: dict[tuple[int, torch.Size], tuple[Tensor, Tensor]] = {}
    weights = {}
    for name, tensor in named_weights(model):
        at = tensor.data_ptr(), tensor.shape
        if at not in converted:
            converted[at] = tensor, _without_loss(tensor, dtype)
        weights[name] = converted[at][1]
    return weights


def _without_loss(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    if not tensor.is_floating_point() or tensor.dtype == dtype:
        return tensor
    narrower = tensor.to(dtype)
    return narrower if torch.equal(narrower.to(tensor.dtype), tensor) else tensor


def precision_of_files(model: MemoryModel) -> torch.dtype:
    """The precision of the files, if the model was loaded in a wider one: then nothing is lost in it."""
    stored = _stored_dtype(model.source)
    return stored if stored is not None and stored.itemsize < model.dtype.itemsize else model.dtype


def _stored_dtype(source: str) -> torch.dtype | None:
    """The precision in which a model's folder or hub name has its weights, where its config says so."""
    try:
        config = AutoConfig.from_pretrained(source, local_files_only=True) if source else None
    except (OSError, ValueError):  # a .gguf file, a fairseq checkpoint, a folder with its own code
        return None
    dtype = getattr(config, "dtype", None)
    return dtype if isinstance(dtype, torch.dtype) else None


def with_weights(
    model: Any, weights: Weights, widths: dict[str, int] | None = None, known: Sequence[Width] = ()
) -> Any:
    """A model of the same class with other weights, which may have other widths. It is only good for saving.

    RuntimeError if weights do not fit.
    """
    skeleton = with_widths(model, widths or {}, list(known))
    skeleton.generation_config = getattr(model, "generation_config", None)
    skeleton.load_state_dict(weights, assign=True)
    skeleton.tie_weights()
    return skeleton.eval()


def scale_values(
    weights: Weights, part: Sliced, memories: Int[Tensor, "some"], factors: Float[Tensor, "some"]
) -> float:
    """Multiply the values of some memories of a part, by their numbers in it. Returns the relative error of rounding the products.

    Scaling a value is the same as scaling the coefficient. A factor of 0 also erases infinite numbers.
    """
    _refuse_shared(weights, part, part.value.name)
    weight = weights[part.value.name]
    rows = part.value.rows(weight, memories).cpu().double()
    products = torch.where(factors[:, None] == 0, 0.0, rows * factors[:, None].double())
    rounded = products.to(weight.dtype)
    if not rounded.isfinite().all() and rows.isfinite().all():
        raise InputError(
            f"A factor of {factors.abs().max():g} makes a value of layer {part.layer} too large for "
            f"{str(weight.dtype).removeprefix('torch.')}, in which the weights are written. Choose a smaller one."
        )
    weights[part.value.name] = part.value.with_rows(weight, memories, rounded)
    return relative_error(rounded, products)


def add_to_bias(
    weights: Weights,
    part: Sliced,
    memories: Int[Tensor, "some"],
    coefficients: Float[Tensor, "some"],
    *,
    option: str,
    instead: str,
) -> float:
    """Add what memories of a part write with constant coefficients to the bias of its output projection, which must have one.

    Returns the relative error of rounding the sum. `option` is what needs it, `instead` what to do without.
    """
    if part.bias is None:
        raise LayoutError(
            f"{option} needs an output projection with a bias, to which a constant contribution is added; that of layer "
            f"{part.layer} has none that is the same for every token. {instead}"
        )
    _refuse_shared(weights, part, part.bias)
    values = part.part.values()[memories.to(part.part.values().device)].cpu().double()
    bias = weights[part.bias]
    total = bias.cpu().double() + coefficients.cpu().double() @ values
    rounded = total.to(bias.dtype)
    weights[part.bias] = rounded.to(bias.device)
    return relative_error(rounded, total)


def _refuse_shared(weights: Weights, part: Sliced, name: str) -> None:
    shared = [other for other, tensor in weights.items() if other != name and tensor is weights[name]]
    if shared:
        raise LayoutError(
            f"Expected weights of its own in layer {part.layer}; found that {name} is also {shared[0]}, so a change of one would "
            "change both. Untie them first."
        )
