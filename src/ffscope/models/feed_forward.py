"""One feed-forward layer of a model as memories."""

from typing import Any

import torch
from torch import Tensor, nn

from ffscope.axes import Float
from ffscope.models.families import Block, Power
from ffscope.models.hooks import Site, find, parse_sites
from ffscope.models.parts import Arguments, make_part

Keys = Tensor | tuple[Tensor, Tensor]


def resolve_scale(scale: float | Power, config: Any) -> float:
    """The scale of a row as a number: itself, or a power of a config attribute."""
    return getattr(config, scale.attribute) ** scale.exponent if isinstance(scale, Power) else scale


class FeedForward:
    """One feed-forward layer of a model."""

    def __init__(self, block: nn.Module, depth: int, spec: Block, config: Any) -> None:
        self.block, self.spec = block, spec
        self.parts = [make_part(block, depth, part) for part in spec.parts]
        for before, part in zip(self.parts, self.parts[1:], strict=False):
            part.offset = before.offset + before.memories
        self.device: torch.device | None = None  # where keys and values are given, if that is not where the layer runs
        self.memories = sum(part.memories for part in self.parts)
        self.gated = all(part.gated for part in self.parts)
        self.scale = resolve_scale(spec.scale, config)
        self.post: nn.Module | None = find(block, spec.post) if spec.post else None
        self.residual_sites = parse_sites(spec.residual)
        self.update_site = parse_sites(spec.update_site)[0]
        self.output_site = parse_sites(spec.output)[0]

    def __repr__(self) -> str:
        return f"FeedForward({self.memories} memories, {'gated' if self.gated else 'plain'}, in a {type(self.block).__name__})"

    def module(self, site: Site) -> nn.Module:
        """The module of this block that a site refers to."""
        return find(self.block, site.path)

    def keys(self) -> Keys:
        """Memory × hidden; a pair (gate, key) for a gated layer."""
        keys = [_concatenate(group) for group in zip(*(part.keys() for part in self.parts), strict=True)]
        keys = [key.to(self.device) for key in keys]
        return keys[0] if len(keys) == 1 else (keys[0], keys[1])

    def key_biases(self) -> tuple[Tensor | None, ...]:
        """The biases added to x·key, one entry per key; None for a key without bias."""
        biases = [part.key_biases() for part in self.parts]
        return tuple(
            None if group[0] is None else _concatenate(group).to(self.device) for group in zip(*biases, strict=True)
        )

    def values(self) -> Float[Tensor, "memory hidden"]:
        """The rows of the output projection."""
        return _concatenate(tuple(part.values() for part in self.parts)).to(self.device)

    def update(self, coefficients: list[Tensor], arguments: list[Arguments]) -> Float[Tensor, "tokens hidden"]:
        """y, computed from each part's coefficients (tokens × memory): values and bias, then the post-norm and the scale."""
        summed = torch.zeros(())
        for part, part_coefficients, part_arguments in zip(self.parts, coefficients, arguments, strict=True):
            bias = part.bias(part_arguments)
            values = part.values()
            product = part_coefficients.to(values.device) @ values
            summed = summed.to(product) + (product if bias is None else product + bias)
        return (summed if self.post is None else self.post(summed)) * self.scale


def _concatenate(tensors: tuple[Tensor, ...]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)
