"""Hooks that act in one thread only, and the places in a block where they sit."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

Side = Literal["in", "out"]


@dataclass(frozen=True)
class Site:
    """What goes into or comes out of one module of a block: `in:ln_2`, `out:mlp`; `.` is the block itself."""

    side: Side
    path: str

    @classmethod
    def parse(cls, text: str) -> "Site":
        side, _, path = text.strip().partition(":")
        if side == "in":
            return cls("in", path)
        if side == "out":
            return cls("out", path)
        raise ValueError(f"a site starts with 'in:' or 'out:', not {text!r}")

    def __str__(self) -> str:
        return f"{self.side}:{self.path}"


def parse_sites(text: str) -> tuple[Site, ...]:
    """`"in:. + out:attention"` as its two sites; their tensors are summed."""
    return tuple(Site.parse(term) for term in text.split("+"))


def find(root: nn.Module, path: str) -> Any:
    """The module or function at a dotted path; `.` is the root, a number counts into a list, `-1` from its end."""
    found: Any = root
    for name in path.split(".") if path != "." else ():
        found = found[int(name)] if name.lstrip("-").isdigit() else getattr(found, name)
    return found


def has(root: nn.Module, path: str) -> bool:
    """Whether there is something at a dotted path."""
    try:
        return find(root, path) is not None
    except (AttributeError, IndexError):
        return False


def first_tensor(value: Any) -> Tensor:
    """A module's main input or output: many return a tuple whose first element it is."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dict):  # keyword arguments come in any order
        value = (value.get("hidden_states"), *value.values())
    return next(element for element in value if isinstance(element, Tensor))


@contextmanager
def listening(module: nn.Module, side: Side, hear: Callable[[Tensor], Any]) -> Iterator[None]:
    """Call `hear` with what goes into or comes out of `module`, in this thread; a tensor it returns takes its place (out only)."""
    owner = threading.get_ident()

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if threading.get_ident() == owner:
            hear(first_tensor(args or kwargs))

    def after(_module: nn.Module, _args: Any, output: Any) -> Any:
        if threading.get_ident() != owner:
            return None
        heard = hear(first_tensor(output))
        if heard is None or isinstance(output, Tensor):
            return heard
        return tuple(heard if element is first_tensor(output) else element for element in output)

    if side == "in":
        handle = module.register_forward_pre_hook(before, with_kwargs=True)
    else:
        handle = module.register_forward_hook(after)
    try:
        yield
    finally:
        handle.remove()
