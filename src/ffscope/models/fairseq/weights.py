"""A checkpoint's weights under the names of our modules, and the model's shape derived from them."""

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
# What fairseq saves besides weights: versions, empty tensors that mark a device, and in very old files position embeddings.
_NOT_WEIGHTS = re.compile(r"(.*\.)?(version|_float_tensor)|embed_positions\.weights")
_IN_PROJ = re.compile(r"(.*)in_proj_(weight|bias)")
_BAND, _PROJECTION = "embed_tokens.embeddings.{}.0.weight", "embed_tokens.embeddings.{}.1.weight"
_WORDS, _HEAD = "adaptive_softmax.head.word_proj.weight", "adaptive_softmax.head.weight"
_TAIL_PROJECTION, _TAIL_WORDS = "adaptive_softmax.tail.{}.0.weight", "adaptive_softmax.tail.{}.2.weight"
_KEYS = "layers.{}.fc1.weight"
_PER_LAYER = 16


def read_weights(model: dict[str, Any]) -> Weights:
    """The decoder's weights under their current names. Decoders before version 3 use no final norm, even if the file has one."""
    weights: Weights = {}
    for name, tensor in model.items():
        name = str(name).removeprefix(_ROOT)
        if not isinstance(tensor, Tensor) or _NOT_WEIGHTS.fullmatch(name):
            continue
        _refuse_unusual_tensor(name, tensor)
        for old, new in _RENAMED:
            name = old.sub(new, name)
        weights.update(_split_in_proj(name, tensor))
    if _version(model) <= 2:
        weights = {name: tensor for name, tensor in weights.items() if not name.startswith("layer_norm.")}
    if _BAND.format(0) not in weights:
        raise SourceError(
            f"The checkpoint has no adaptive inputs: expected {_ROOT}{_BAND.format(0)}, found {_first_names(weights)}. "
            "Expected fairseq's transformer_lm with --adaptive-input and an adaptive softmax."
        )
    return weights


def _refuse_unusual_tensor(name: str, tensor: Tensor) -> None:
    """Raise unless the file stores every element of the tensor: otherwise a few bytes could expand to any size."""
    plain = tensor.layout == torch.strided and tensor.is_floating_point() and tensor.device.type == "cpu"
    if not plain or tensor.untyped_storage().nbytes() < tensor.numel() * tensor.element_size():
        raise SourceError(
            f"{name[:100]} in the checkpoint is not a dense floating-point tensor. Expected the weights of a model."
        )


def _version(model: dict[str, Any]) -> float:
    version = model.get(f"{_ROOT}version")
    return version.max().item() if isinstance(version, Tensor) and version.numel() else 1.0


def _split_in_proj(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """A weight, or its three parts: in old files query, key and value are one projection."""
    joint = _IN_PROJ.fullmatch(name)
    if joint is None:
        yield name, tensor
        return
    for letter, part in zip("qkv", tensor.chunk(3), strict=True):
        yield f"{joint[1]}{letter}_proj.{joint[2]}", part


def shape_of(weights: Weights) -> dict[str, Any]:
    """The shape of the model according to its weights: bands, widths, depth, tying, and whether it has a final norm."""
    bands = [weights[name] for name in _numbered(weights, _BAND)]
    layers = len(list(_numbered(weights, _KEYS)))
    tied = _WORDS in weights
    if not layers or not (tied or _HEAD in weights) or len(weights) < _PER_LAYER * layers:
        article = "an" if tied or _HEAD in weights else "no"
        raise SourceError(
            f"The checkpoint has {layers} layers, {len(weights)} weights and {article} adaptive softmax. Expected a complete "
            f"transformer_lm of fairseq: {_PER_LAYER} weights per layer and an adaptive softmax."
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
            "Expected the same number."
        )
    return {**shape, **softmax}


def _ties_projections(weights: Weights) -> bool:
    """Whether the tails use the projections of the input bands: then the file has each projection twice."""
    tails = [weights[name] for name in _numbered(weights, _TAIL_PROJECTION)]
    projections = [weights.get(_PROJECTION.format(i + 1)) for i in range(len(tails))]
    pairs = zip(tails, projections, strict=True)
    return all(projection is not None and torch.equal(tail, projection) for tail, projection in pairs)


def _softmax_shape(weights: Weights) -> dict[str, list[int]]:
    """The bands of an untied softmax."""
    head = weights[_HEAD]
    tails = [weights[name] for name in _numbered(weights, _TAIL_WORDS)]
    sizes = [len(head) - len(tails), *(len(tail) for tail in tails)]
    return {"softmax_cutoffs": list(accumulate(sizes)), "softmax_widths": [head.shape[1], *(t.shape[1] for t in tails)]}


def untied_weights(weights: Weights, shape: dict[str, Any]) -> Weights:
    """The weights without those that are tied to others; raises if tied weights differ in the file."""
    tied = _tied_names(shape)
    for name, original in tied.items():
        if name in weights and not torch.equal(weights[name], weights[original]):
            raise SourceError(f"The checkpoint ties {name} to {original}, but they differ. Download it again.")
    return {name: tensor for name, tensor in weights.items() if name not in tied}


def _tied_names(shape: dict[str, Any]) -> dict[str, str]:
    """Tied weights by name, with the name of the weight that each is tied to."""
    if not shape["tie_adaptive_weights"]:
        return {}
    tied = {_WORDS: _BAND.format(0)}
    for tail in range(len(shape["input_cutoffs"]) - 1):
        tied[_TAIL_WORDS.format(tail)] = _BAND.format(tail + 1)
        if shape["tie_adaptive_proj"]:
            tied[_TAIL_PROJECTION.format(tail)] = _PROJECTION.format(tail + 1)
    return tied


def _numbered(weights: Weights, pattern: str) -> Iterator[str]:
    """The names that a pattern gives for 0, 1, 2, …, up to the first that is missing."""
    number = 0
    while (name := pattern.format(number)) in weights:
        yield name
        number += 1


def _first_names(weights: Weights) -> str:
    return ", ".join(list(weights)[:3]) or "nothing"
