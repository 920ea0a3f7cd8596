"""Hooks that act in one thread only, and the sites in a block where they are attached."""

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

Side = Literal["in", "out"]
Hook = Callable[..., Any]

# torch numbers hooks without a lock, so two threads could get the same number. It also looks up a hook and whether that hook takes
# keyword arguments in two steps: a thread that runs while another registers may call a hook without them. A hook must therefore
# first check that it belongs to this thread.
_REGISTERING = threading.Lock()


@dataclass(frozen=True)
class Site:
    """The input or output of one module of a block: `in:ln_2`, `out:mlp`; `.` is the block itself."""

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
    """The module or function at a dotted path; `.` is the root, a number indexes a list, `-1` is its last element."""
    node: Any = root
    for name in path.split(".") if path != "." else ():
        node = node[int(name)] if name.lstrip("-").isdigit() else getattr(node, name)
    return node


def has(root: nn.Module, path: str) -> bool:
    """Whether there is something at a dotted path."""
    try:
        return find(root, path) is not None
    except (AttributeError, IndexError):
        return False


def first_tensor(value: Any) -> Tensor:
    """A module's main input or output: the first tensor, as many modules return a tuple."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, dict):  # keyword arguments come in any order
        value = (value.get("hidden_states"), *value.values())
    return next(element for element in value if isinstance(element, Tensor))


def attach(module: nn.Module, side: Side, hook: Hook) -> RemovableHandle:
    """Register a hook, which `detach` removes. It is called with the module, args, kwargs and, on the `out` side, the output."""
    with _REGISTERING:
        if side == "in":
            return module.register_forward_pre_hook(hook, with_kwargs=True)
        return module.register_forward_hook(hook, with_kwargs=True)


def detach(handle: RemovableHandle) -> None:
    """Remove a hook."""
    with _REGISTERING:
        handle.remove()


def copy_module(module: nn.Module) -> nn.Module:
    """A copy of a module with its weights, made while no thread changes its hooks."""
    hook: Any = getattr(module, "_hf_hook", None)
    if hook is None:
        with _REGISTERING:
            return copy.deepcopy(module)
    from accelerate.hooks import remove_hook_from_module
    from accelerate.utils import align_module_device

    with _REGISTERING, align_module_device(module):
        # accelerate's hook is shared, not copied: it refers to the offloaded weights of the whole model.
        copied = copy.deepcopy(module, {id(hook): hook})
        weights = dict(copied.named_parameters(recurse=False))
        remove_hook_from_module(copied)
        for name, weight in weights.items():
            setattr(copied, name, weight)
    return copied


@contextmanager
def hooked(module: nn.Module, side: Side, hook: Hook) -> Iterator[None]:
    """Register a hook for the duration of the `with` block, in this thread only."""
    owner = threading.get_ident()

    def guarded(*arguments: Any) -> Any:
        return hook(*arguments) if threading.get_ident() == owner else None

    handle = attach(module, side, guarded)
    try:
        yield
    finally:
        detach(handle)


def tap(module: nn.Module, side: Side, observe: Callable[[Tensor], Any]) -> AbstractContextManager[None]:
    """Call `observe` with the input or output of a module; on the `out` side, a tensor that it returns replaces the output."""

    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        observe(first_tensor(args or kwargs))

    def after(_module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> Any:
        replacement = observe(first_tensor(output))
        if replacement is None or isinstance(output, Tensor):
            return replacement
        return tuple(replacement if element is first_tensor(output) else element for element in output)

    return hooked(module, side, before if side == "in" else after)
