"""Lenses: ways to read a vector as logits over the vocabulary. Each is a module of this package, named after the lens; no torch.

A lens's module ends in `LENS`, its class, whose `for_model` makes the lens for a model. `base` is what all lenses share.
"""

from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from ffscope.errors import LensError

if TYPE_CHECKING:
    from ffscope.models.families import Top
    from ffscope.models.feed_forward import FeedForward
    from ffscope.models.lenses.base import Lens


def lens_names() -> tuple[str, ...]:
    """The names of all lenses."""
    return tuple(sorted(module.name for module in iter_modules(__path__) if module.name != "base"))


def check_lens_name(name: str) -> None:
    """Raise if there is no lens of that name."""
    if name not in lens_names():
        raise LensError(f"There is no lens {name!r}. Choose one of: {', '.join(lens_names())}.")


def make_lens(name: str, model: Any, top: "Top | None", layers: "Sequence[FeedForward]") -> "Lens":
    """The lens of that name for a transformers model."""
    from ffscope.models.unembedding import make_unembedding

    check_lens_name(name)
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if top is None or head is None:
        raise LensError(
            f"{type(model).__name__} has no unembedding, so its vectors cannot be read over a vocabulary. "
            "Load the model with its language-modelling head."
        )
    lens: type[Lens] = import_module(f"{__name__}.{name}").LENS
    return lens.for_model(model, top, make_unembedding(head), layers)
