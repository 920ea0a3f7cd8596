"""Lenses: ways to read a vector as logits over the vocabulary. Each is a module of this package, named after the lens; no torch.

A lens's module ends in `LENS`, its class, whose `for_model` makes the lens for a model. `base` is what all lenses share. Those in
`learned` need what `ffscope lens` has learned about the model, and saved with a study.
"""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, NamedTuple

from ffscope.errors import LensError
from ffscope.models.lenses import learned

if TYPE_CHECKING:
    from ffscope.models.families import Top
    from ffscope.models.feed_forward import FeedForward
    from ffscope.models.lenses.base import Lens


class ChosenLens(NamedTuple):
    """A lens by name and, if it is learned, the study that it is saved with; it can be pickled."""

    name: str
    study: Path | None

    def of(self, model: Any) -> "Lens":
        """The lens for a MemoryModel."""
        return model.lens(self.name, self.study)


def choose_lens(name: str, study: Path) -> ChosenLens:
    """The lens of that name for the model of a study; raises if the study does not have it."""
    chosen = ChosenLens(name, study.resolve() if is_learned(name) else None)
    check_lens(*chosen)
    return chosen


def lens_names() -> tuple[str, ...]:
    """The names of all lenses: those that every model has, then those that are learned."""
    return (*_modules(__path__), *_modules(learned.__path__))


def _modules(path: Any) -> list[str]:
    names = (module.name for module in iter_modules(path) if not module.ispkg)
    return sorted(name for name in names if name != "base")


def is_learned(name: str) -> bool:
    """Whether a lens must be learned before a model can be read through it."""
    return name in _modules(learned.__path__)


def lenses_of(study: Path) -> list[str]:
    """The lenses through which the model of a study can be read."""
    return [name for name in lens_names() if not is_learned(name) or learned.lens_file(study, name).is_file()]


def check_lens_name(name: str) -> None:
    """Raise if there is no lens of that name."""
    if name not in lens_names():
        raise LensError(f"There is no lens {name!r}. Choose one of: {', '.join(lens_names())}.")


def check_lens(name: str, study: Path | None) -> None:
    """Raise if there is no lens of that name, or if it must be learned and the study does not have it."""
    check_lens_name(name)
    if not is_learned(name):
        return
    if study is None:
        raise LensError(
            f"The {name} lens is learned from a model, so it needs the study that it was saved with. Name the study, or choose one "
            f"of: {', '.join(_modules(__path__))}."
        )
    if not learned.lens_file(study, name).is_file():
        raise LensError(
            f"{study} has no {name} lens yet: expected {learned.lens_file(study, name)}. Learn it with: ffscope lens MODEL --study "
            f"{study}"
        )


def make_lens(name: str, model: Any, top: "Top | None", layers: "Sequence[FeedForward]", study: Path | None) -> "Lens":
    """The lens of that name for a transformers model; a learned one is read from a study."""
    from ffscope.models.unembedding import make_unembedding

    check_lens_name(name)
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if top is None or head is None:
        raise LensError(
            f"{type(model).__name__} has no unembedding, so its vectors cannot be read over a vocabulary. "
            "Load the model with its language-modelling head."
        )
    check_lens(name, study)
    package = learned.__name__ if is_learned(name) else __name__
    lens: type[Lens] = import_module(f"{package}.{name}").LENS
    return lens.for_model(model, top, make_unembedding(head), layers, study)
