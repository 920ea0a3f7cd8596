"""A row of the table, laid onto a model's modules."""

from typing import Any

from torch import nn

from ffscope.errors import LayoutError
from ffscope.models.families import Block, Family, Top
from ffscope.models.feed_forward import FeedForward
from ffscope.models.hooks import find, has


def feed_forwards(model: Any, family: Family) -> list[FeedForward]:
    """Every feed-forward layer, in the order the model runs them; an encoder's before its decoder's."""
    refuse_unhandled(model.config, family)
    found: list[FeedForward] = []
    for stack in family.stacks:
        if not has(model.base_model, stack):  # an encoder without its decoder, say
            continue
        for depth, block in enumerate(find(model.base_model, stack)):
            layouts = family.blocks[len(found) : len(found) + 1] if family.in_order else family.blocks
            found.append(FeedForward(block, depth, choose_block(block, model.config, layouts), model.config))
    if not found:
        raise LayoutError(
            f"Expected the blocks of {type(model).__name__} at {' or '.join(map(repr, family.stacks))}, and found none."
        )
    return found


def refuse_unhandled(config: Any, family: Family) -> None:
    """Raise for attributes that change what the feed-forward layer computes in a way that the row does not follow."""
    for name, handled in family.only.items():
        value = getattr(config, name, handled)
        if value != handled:
            raise LayoutError(
                f"{config.model_type} with {name}={value!r} is not handled: it changes how the feed-forward layer runs. "
                f"Expected {name}={handled!r}; set it so in the model's config."
            )


def choose_block(block: nn.Module, config: Any, layouts: tuple[Block, ...]) -> Block:
    """The first of some layouts that this block has."""
    for layout in layouts:
        if _holds(layout.when, config) and all(has(block, path) for path in layout.paths):
            return layout
    missing = sorted({path for layout in layouts for path in layout.paths if not has(block, path)})
    raise LayoutError(
        f"A {type(block).__name__} does not have the layout of {config.model_type!r}: expected {', '.join(missing)}; "
        f"found {', '.join(name for name, _ in block.named_children())}."
    )


def find_top(model: Any, family: Family) -> Top | None:
    """What lies between the last output and the logits; None for a model without an unembedding."""
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        return None
    return next((top for top in family.tops if _holds(top.when, model.config)), None)


def _holds(when: Any, config: Any) -> bool:
    return all(getattr(config, name, None) == value for name, value in when.items())
