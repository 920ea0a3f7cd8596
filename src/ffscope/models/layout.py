"""Apply a row of the table to a model's modules."""

from typing import Any

from torch import nn

from ffscope.errors import LayoutError
from ffscope.models.families import Block, Family, Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.hooks import find, has


def feed_forwards(model: Any, family: Family) -> list[FeedForward]:
    """Every feed-forward layer, in the order in which the model runs them; an encoder's come before its decoder's."""
    refuse_unhandled(model.config, family)
    layers: list[FeedForward] = []
    for stack in family.stacks:
        if not has(model.base_model, stack):  # for example an encoder without its decoder
            continue
        for depth, block in enumerate(find(model.base_model, stack)):
            layouts = family.blocks[len(layers) : len(layers) + 1] if family.in_order else family.blocks
            layers.append(FeedForward(block, depth, choose_block(block, model.config, layouts), model.config))
    if not layers:
        raise LayoutError(
            f"Expected the blocks of {type(model).__name__} at {' or '.join(map(repr, family.stacks))}, found none there."
        )
    return layers


def refuse_unhandled(config: Any, family: Family) -> None:
    """Raise for config attributes that change the feed-forward layer in a way that the row does not describe."""
    for name, supported in family.only.items():
        value = getattr(config, name, supported)
        if value != supported:
            raise LayoutError(
                f"{config.model_type} with {name}={value!r} is not supported: it changes how the feed-forward layer runs. "
                f"Expected {name}={supported!r}; set it in the model's config."
            )


def choose_block(block: nn.Module, config: Any, layouts: tuple[Block, ...]) -> Block:
    """The first layout that fits this block."""
    for layout in layouts:
        if _matches(layout.when, config) and all(has(block, path) for path in layout.paths):
            return layout
    missing = sorted({path for layout in layouts for path in layout.paths if not has(block, path)})
    raise LayoutError(
        f"A {type(block).__name__} does not have the layout of {config.model_type!r}: expected {', '.join(missing)}; "
        f"found {', '.join(name for name, _ in block.named_children())}."
    )


def find_top(model: Any, family: Family) -> Top | None:
    """The steps between the last output and the logits; None for a model without an unembedding."""
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        return None
    return next((top for top in family.tops if _matches(top.when, model.config)), None)


def _matches(when: Any, config: Any) -> bool:
    return all(getattr(config, name, None) == value for name, value in when.items())
