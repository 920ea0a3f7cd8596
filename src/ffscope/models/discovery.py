"""A row for a model that is not in the table, found by running it once and seeing which tensors equal which.

Looked for in every block: a projection back to the residual whose input is f(x·K) or f(x·G)·(x·K) of other projections in
the block, or stacked experts; then tensors r and o with r + y = o. What is found is a row like any other and must pass the
same identities.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.pytorch_utils import Conv1D

from ffscope.errors import LayoutError
from ffscope.models.families import Block, Dense, Experts, Family, Top
from ffscope.models.hooks import find, first_tensor, hooked
from ffscope.models.inputs import RUNNING, logits_of, random_inputs
from ffscope.models.lenses.norm import NormLens
from ffscope.models.parts import activation
from ffscope.models.tolerance import relative_error, sum_error, tolerance
from ffscope.models.unembedding import unembedding

_COMMON = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu", "tanh", "sigmoid")


@dataclass
class _Seen:
    """What went into and came out of the modules of one pass, in the order in which they finished."""

    into: dict[str, Tensor] = field(default_factory=dict)
    out: dict[str, Tensor] = field(default_factory=dict)
    twice: set[str] = field(default_factory=set)  # modules that ran more than once stand for no single tensor
    result: Any = None

    def below(self, prefix: str) -> "_Seen":
        """The part of it within one block, with paths from the block, `.` the block itself."""

        def mine(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            inside = (path for path in tensors if f"{path}.".startswith(f"{prefix}."))
            return {path[len(prefix) + 1 :] or ".": tensors[path] for path in inside}

        return _Seen(mine(self.into), mine(self.out))


def discover(model: Any) -> Family:
    """The row of an unknown model; LayoutError with what was looked for and found where it has none."""
    seen = _run(model)
    stacks = _stacks(model, seen)
    paths = [path for stack in stacks for path, _ in _blocks(model, stack)]
    layouts = [_layout(model, find(model, path), seen.below(path)) for path in paths]
    read = [layout for layout in layouts if layout is not None]
    if not read:
        raise LayoutError(_nothing(model, stacks))
    if len(read) < len(layouts):
        bare = paths[layouts.index(None)]
        raise LayoutError(
            f"A feed-forward layer was found in {len(read)} of {len(layouts)} blocks, and none in {bare} "
            f"({type(find(model, bare)).__name__}). To leave out what cannot be read would number the layers wrongly."
        )
    base = _prefix(model)
    return Family(
        stacks=tuple(stack.removeprefix(base) for stack in stacks),
        blocks=tuple(read),
        tops=_tops(model, seen, paths[-1], read[-1]),
        in_order=True,
    )


@torch.no_grad()
def _run(model: Any) -> _Seen:
    seen = _Seen()
    with ExitStack() as stack:
        for path, module in model.named_modules():
            stack.enter_context(_keeping(seen, path, module))
        seen.result = model(**random_inputs(model, batch=1, length=6))
    for path in seen.twice:
        seen.into.pop(path, None)
        seen.out.pop(path, None)
    return seen


@contextmanager
def _keeping(seen: _Seen, path: str, module: nn.Module) -> Iterator[None]:
    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = [value for value in (kwargs.get("hidden_states"), *args, *kwargs.values()) if isinstance(value, Tensor)]
        if given and given[0].is_floating_point():
            seen.into[path] = first_tensor(given).clone()

    def after(_module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if path in seen.out:
            seen.twice.add(path)
        candidates = output if isinstance(output, tuple) else (output,)
        if candidates and isinstance(candidates[0], Tensor) and candidates[0].is_floating_point():
            seen.out[path] = candidates[0].clone()

    with hooked(module, "in", before), hooked(module, "out", after):
        yield


def _stacks(model: Any, seen: _Seen) -> list[str]:
    """The outermost lists of modules that ran one after another on tensors of one shape."""
    found: list[str] = []
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{stack}.") for stack in found)
        if inside or not isinstance(module, nn.ModuleList) or not len(module):
            continue
        shapes = {seen.into[name].shape for name in _names(path, module) if name in seen.into}
        ran = all(name in seen.out for name in _names(path, module))
        if ran and len(shapes) == 1 and all(len(list(block.parameters())) for block in module):
            found.append(path)
    return found


def _names(path: str, modules: nn.ModuleList) -> list[str]:
    return [f"{path}.{i}" for i in range(len(modules))]


def _blocks(model: Any, stack: str) -> Iterator[tuple[str, nn.Module]]:
    modules = find(model, stack)
    yield from zip(_names(stack, modules), modules, strict=True)


def _layout(model: Any, block: nn.Module, seen: _Seen) -> Block | None:
    limit = tolerance(model.dtype)
    parts: tuple[Dense | Experts, ...] = (*_experts(block, seen), *_dense(model.config, block, seen, limit))
    candidates = (_residual(block, seen, weighed, limit) for weighed in _weighed(block, seen, parts))
    return next((layout for layout in candidates if layout is not None), None)


def _weighed(
    block: nn.Module, seen: _Seen, parts: tuple[Dense | Experts, ...]
) -> Iterator[tuple[Dense | Experts, ...]]:
    """The parts as they are; then with each dense one multiplied by what a projection to one number says."""
    if not parts:
        return
    yield parts
    for path, module in block.named_modules():
        if isinstance(module, nn.Linear) and module.out_features == 1 and path in seen.out:
            for i, part in enumerate(parts):
                if isinstance(part, Dense):
                    yield (*parts[:i], replace(part, weight=path), *parts[i + 1 :])


def _given(seen: _Seen, part: Dense | Experts) -> Tensor:
    """What a part gives to the sum, a row per token."""
    if isinstance(part, Experts):
        return seen.out[part.path].flatten(0, -2)
    given = seen.out[part.value].flatten(0, -2)
    return given * seen.out[part.weight].flatten(0, -2).sigmoid() if part.weight else given


def _experts(block: nn.Module, seen: _Seen) -> Iterator[Experts]:
    for path, module in block.named_modules():
        weights: Any = getattr(module, "down_proj", None)
        if (
            isinstance(weights, nn.Parameter)
            and weights.dim() == 3
            and hasattr(module, "is_transposed")
            and path in seen.out
        ):
            yield Experts(path)


def _dense(config: Any, block: nn.Module, seen: _Seen, limit: float) -> Iterator[Dense]:
    """Every projection whose input other projections make through an activation."""
    acts = [*_acts_of(block, seen), *(f"fn:{name}" for name in _acts_named(config))]
    linear = [
        path
        for path, m in block.named_modules()
        if isinstance(m, nn.Linear | Conv1D) and path in seen.into and path in seen.out
    ]
    hidden = seen.into["."].shape[-1]
    for value in linear:
        memories = seen.into[value].shape[-1]
        makers = [
            path
            for path in linear
            if path != value
            and seen.into[path].shape[-1] == hidden
            and seen.out[path].shape[-1] in (memories, 2 * memories)
        ]
        found = next(_matches(block, seen, value, makers, acts, limit), None)
        if found is not None and seen.out[value].shape[-1] == hidden:
            yield found


def _matches(
    block: nn.Module, seen: _Seen, value: str, makers: list[str], acts: list[str], limit: float
) -> Iterator[Dense]:
    wanted = seen.into[value]
    for act in acts:
        apply = activation(block, act)
        for key in makers:
            made = seen.out[key]
            if made.shape[-1] == wanted.shape[-1] and relative_error(apply(made), wanted) <= limit:
                yield Dense(key=key, value=value, act=act)
            if made.shape[-1] == 2 * wanted.shape[-1]:
                first, second = made.chunk(2, -1)
                if relative_error(apply(first) * second, wanted) <= limit:
                    yield Dense(key=key, value=value, act=act, fused="gate-key")
                if relative_error(first * apply(second), wanted) <= limit:
                    yield Dense(key=key, value=value, act=act, fused="key-gate")
        for gate, key in permutations(makers, 2):
            a, b = seen.out[gate], seen.out[key]
            if a.shape == b.shape == wanted.shape and relative_error(apply(a) * b, wanted) <= limit:
                yield Dense(gate=gate, key=key, value=value, act=act)


def _acts_of(block: nn.Module, seen: _Seen) -> list[str]:
    """The block's own modules that could be an activation: nothing to learn, nothing inside, and the shape stays."""
    return [
        path
        for path, module in block.named_modules()
        if not list(module.children())
        and not list(module.parameters())
        and not isinstance(module, nn.Dropout | nn.Identity)
        and path in seen.into
        and path in seen.out
        and seen.into[path].shape == seen.out[path].shape
    ]


def _acts_named(config: Any) -> list[str]:
    named = [value for value in config.to_dict().values() if isinstance(value, str) and value in ACT2FN]
    return list(dict.fromkeys([*named, *_COMMON]))


def _residual(block: nn.Module, seen: _Seen, parts: tuple[Dense | Experts, ...], limit: float) -> Block | None:
    """Where r, y and o are, such that r + scale·y = o."""
    made = [_given(seen, part) for part in parts]
    if any(tensor.shape != made[0].shape for tensor in made):
        return None
    summed = torch.stack(made).sum(0)
    for post, update in _updates(block, seen, summed, limit):
        y = seen.out[update].flatten(0, -2)
        for output in _outputs(seen, limit):
            o = _tensor(seen, output).flatten(0, -2)
            if o.shape != y.shape:
                continue
            for residual, r in _residuals(seen, o.shape):
                for scale in (1.0, _fitted(o - r, y)):
                    if scale > 0.01 and sum_error(o, r, scale * y) <= limit:
                        return Block(parts, residual, output, post, f"out:{update}", scale)
    return None


def _fitted(found: Tensor, term: Tensor) -> float:
    """The factor that takes one nearest to the other."""
    return round(((found.double() * term).sum() / term.double().square().sum()).item(), 6)


def _updates(block: nn.Module, seen: _Seen, summed: Tensor, limit: float) -> Iterator[tuple[str | None, str]]:
    """Modules that give what the parts give together, or a norm of it."""
    for path, tensor in seen.out.items():
        if path != "." and relative_error(tensor, summed) <= limit:
            yield None, path
    for path, tensor in seen.into.items():
        plain = not any(isinstance(module, nn.Linear | Conv1D) for module in find(block, path).modules())
        if path != "." and plain and path in seen.out and relative_error(tensor, summed) <= limit:
            yield path, path


def _outputs(seen: _Seen, limit: float) -> Iterator[str]:
    yield "out:."
    for path, tensor in seen.out.items():
        if path != "." and path in seen.into and relative_error(tensor, seen.out["."]) <= limit:
            yield f"in:{path}"


def _residuals(seen: _Seen, shape: torch.Size) -> Iterator[tuple[str, Tensor]]:
    """Tensors of the residual's shape; last, the sums of the block's input and one of its parts (a parallel block)."""
    sites = [(f"in:{path}", tensor) for path, tensor in seen.into.items()]
    sites += [(f"out:{path}", tensor) for path, tensor in seen.out.items() if path != "."]
    fitting = [(site, tensor.flatten(0, -2)) for site, tensor in sites if tensor.flatten(0, -2).shape == shape]
    yield from fitting
    start = seen.into["."].flatten(0, -2)
    yield from ((f"in:. + {site}", start + tensor) for site, tensor in fitting if site.startswith("out:"))


def _tensor(seen: _Seen, site: str) -> Tensor:
    side, _, path = site.partition(":")
    return (seen.into if side == "in" else seen.out)[path]


def _tops(model: Any, seen: _Seen, path: str, layout: Block) -> tuple[Top, ...]:
    """What the model does between the last block and its logits."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        return ()
    state, wanted = _tensor(seen.below(path), layout.output), logits_of(seen.result)
    if wanted is None:
        return ()
    for top in _top_candidates(model, seen, path, layout):
        try:
            logits = NormLens(model, top, unembedding(head)).logits(state)
        except RUNNING:  # a module that wants more than the state
            continue
        for scale in (1.0, _fitted(wanted, logits)):
            if relative_error(logits * scale, wanted) <= tolerance(model.dtype):
                return (replace(top, scale=scale),)
    raise LayoutError(
        f"Looked for the way from the last output of {type(model).__name__} to its logits, and found none that gives them."
    )


def _top_candidates(model: Any, seen: _Seen, path: str, layout: Block) -> Iterator[Top]:
    """The modules that ran after the last block, with an activation where a head may call one unseen."""
    names = {module: name for name, module in model.named_modules()}
    head = names[model.get_output_embeddings()]
    after = list(seen.out)[list(seen.out).index(path) + 1 :]
    leaves = [
        name
        for name in after[: after.index(head)]
        if not list(find(model, name).children())
        and name in seen.into
        and not isinstance(find(model, name), nn.Dropout)
    ]
    if layout.output != "out:.":
        leaves.insert(0, f"{path}.{layout.output.removeprefix('in:')}")
    cap = "final_logit_softcapping" if getattr(model.config, "final_logit_softcapping", None) else None
    bias = "final_logits_bias" if hasattr(model, "final_logits_bias") else None
    yield Top(tuple(leaves), cap=cap, bias=bias)
    for act in _acts_named(model.config):
        yield Top(
            tuple(
                step
                for leaf in leaves
                for step in ((leaf, f"fn:{act}") if isinstance(find(model, leaf), nn.Linear) else (leaf,))
            )
        )


def _prefix(model: Any) -> str:
    """The base model's own path in the model, with a dot behind it."""
    return next((f"{name}." for name, module in model.named_modules() if name and module is model.base_model), "")


def _nothing(model: Any, stacks: list[str]) -> str:
    looked = (
        "Looked, in every block, for a projection back to the residual whose input an activation makes from other "
        "projections of the block, and for stacked experts"
    )
    if not stacks:
        return f"{looked}; found no stack of blocks in {type(model).__name__}."
    block = max((find(model, stack)[0] for stack in stacks), key=lambda block: len(list(block.modules())))
    leaves = [(path, module) for path, module in block.named_modules() if path and not list(module.children())]
    held = ", ".join(f"{path} ({type(module).__name__})" for path, module in leaves[:12])
    held += " …" if len(leaves) > 12 else ""
    return f"{looked}; a {type(block).__name__} holds {held}, and none fits."
