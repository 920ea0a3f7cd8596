"""A checkpoint's weights under the names of our modules, and the model's shape as they show it."""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ffscope.errors import SourceError

Weights = dict[str, Tensor]
_ROOT = "decoder."
_RENAMED = (
    (re.compile(r"layer_norms\.0\."), "self_attn_layer_norm."),
    (re.compile(r"layer_norms\.2\."), "final_layer_norm."),  # 1 was the norm of an encoder's attention
)
# What fairseq keeps beside the weights: versions, empty tensors that know a device, positions as very old files have them.
_NOTES = re.compile(r"(.*\.)?(version|_float_tensor)|embed_positions\.weights")
_IN_PROJ = re.compile(r"(.*)in_proj_(weight|bias)")
_BAND, _PROJECTION = "embed_tokens.embeddings.{}.0.weight", "embed_tokens.embeddings.{}.1.weight"
_WORDS, _HEAD = "adaptive_softmax.head.word_proj.weight", "adaptive_softmax.head.weight"
_TAIL_PROJECTION, _TAIL_WORDS = "adaptive_softmax.tail.{}.0.weight", "adaptive_softmax.tail.{}.2.weight"
_KEYS = "layers.{}.fc1.weight"
_PER_LAYER = 16


def read_weights(model: dict[str, Any]) -> Weights:
    """The decoder's weights in today's spelling. Before its third version a decoder had no final norm, whatever the file holds."""
    found: Weights = {}
    for name, tensor in model.items():
        name = str(name).removeprefix(_ROOT)
        if not isinstance(tensor, Tensor) or _NOTES.fullmatch(name):
            continue
        _refuse_odd(name, tensor)
        for old, new in _RENAMED:
            name = old.sub(new, name)
        found.update(_apart(name, tensor))
    if _version(model) <= 2:
        found = {name: tensor for name, tensor in found.items() if not name.startswith("layer_norm.")}
    if _BAND.format(0) not in found:
        raise SourceError(
            f"The checkpoint has no adaptive inputs: expected {_ROOT}{_BAND.format(0)}, found {_some(found)}. "
            "Expected fairseq's transformer_lm with --adaptive-input and an adaptive softmax."
        )
    return found


def _refuse_odd(name: str, tensor: Tensor) -> None:
    """Raise for what is no table of numbers that the file holds one by one: a few bytes could stand for any size."""
    plain = tensor.layout == torch.strided and tensor.is_floating_point() and tensor.device.type == "cpu"
    if not plain or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        raise SourceError(
            f"{name[:100]} in the checkpoint is no plain table of numbers. Expected the weights of a model."
        )


def _version(model: dict[str, Any]) -> float:
    version = model.get(f"{_ROOT}version")
    return version.max().item() if isinstance(version, Tensor) and version.numel() else 1.0


def _apart(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Query, key and value were once one projection."""
    joint = _IN_PROJ.fullmatch(name)
    if joint is None:
        yield name, tensor
        return
    for one, part in zip("qkv", tensor.chunk(3), strict=True):
        yield f"{joint[1]}{one}_proj.{joint[2]}", part


def shape_of(weights: Weights) -> dict[str, Any]:
    """What the weights say of the model: bands, widths, depth, and what is tied or there at all."""
    bands = [weights[name] for name in _numbered(weights, _BAND)]
    layers = len(list(_numbered(weights, _KEYS)))
    tied = _WORDS in weights
    if not layers or not (tied or _HEAD in weights) or len(weights) < _PER_LAYER * layers:
        there = "an" if tied or _HEAD in weights else "no"
        raise SourceError(
            f"The checkpoint has {layers} layers, {len(weights)} weights and {there} adaptive softmax. Expected fairseq's "
            f"transformer_lm, whole: {_PER_LAYER} weights for each of its layers, and an adaptive softmax."
        )
    first = weights[_KEYS.format(0)]
    shape: dict[str, Any] = {
        "input_cutoffs": list(accumulate(len(band) for band in bands)),
        "input_widths": [band.shape[1] for band in bands],
        "hidden_size": first.shape[1],
        "intermediate_size": first.shape[0],
        "num_hidden_layers": layers,
        "final_norm": "layer_norm.weight" in weights,
        "tie_adaptive_weights": tied,
        "tie_adaptive_proj": tied and _ties_projections(weights),
    }
    if tied:
        return shape
    softmax = _softmax_shape(weights)
    if softmax["softmax_cutoffs"][-1] != shape["input_cutoffs"][-1]:
        raise SourceError(
            f"The checkpoint embeds {shape['input_cutoffs'][-1]} words and predicts {softmax['softmax_cutoffs'][-1]}. "
            "Expected as many."
        )
    return {**shape, **softmax}


def _ties_projections(weights: Weights) -> bool:
    """Whether tails read with the projections that their words are written with: then the file has them twice."""
    tails = [weights[name] for name in _numbered(weights, _TAIL_PROJECTION)]
    projections = [weights.get(_PROJECTION.format(i + 1)) for i in range(len(tails))]
    return all(one is not None and torch.equal(tail, one) for tail, one in zip(tails, projections, strict=True))


def _softmax_shape(weights: Weights) -> dict[str, list[int]]:
    """An untied softmax has bands of its own."""
    head = weights[_HEAD]
    tails = [weights[name] for name in _numbered(weights, _TAIL_WORDS)]
    sizes = [len(head) - len(tails), *(len(tail) for tail in tails)]
    return {"softmax_cutoffs": list(accumulate(sizes)), "softmax_widths": [head.shape[1], *(t.shape[1] for t in tails)]}


def own_weights(weights: Weights, shape: dict[str, Any]) -> Weights:
    """The weights without those that are tied to others; a file that says they are tied and has others is refused."""
    twins = _twins(shape)
    for name, twin in twins.items():
        if name in weights and not torch.equal(weights[name], weights[twin]):
            raise SourceError(f"The checkpoint ties {name} to {twin}, and they differ. Fetch it again.")
    return {name: tensor for name, tensor in weights.items() if name not in twins}


def _twins(shape: dict[str, Any]) -> dict[str, str]:
    if not shape["tie_adaptive_weights"]:
        return {}
    twins = {_WORDS: _BAND.format(0)}
    for tail in range(len(shape["input_cutoffs"]) - 1):
        twins[_TAIL_WORDS.format(tail)] = _BAND.format(tail + 1)
        if shape["tie_adaptive_proj"]:
            twins[_TAIL_PROJECTION.format(tail)] = _PROJECTION.format(tail + 1)
    return twins


def _numbered(weights: Weights, pattern: str) -> Iterator[str]:
    """The names that a pattern makes of 0, 1, 2, …, as long as they are there."""
    number = 0
    while (name := pattern.format(number)) in weights:
        yield name
        number += 1


def _some(weights: Weights) -> str:
    return ", ".join(list(weights)[:3]) or "nothing"
