"""Find the row of a model that is not in the table, by running it once and comparing its tensors.

In every block this looks for a projection back to the residual whose input is f(x·K) or f(x·G)·(x·K), where K and G are other
projections of the block, or for stacked experts; then for tensors r and o with r + y = o. The result is an ordinary row and must
pass the same identities.
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
from ffscope.models.inputs import MODEL_ERRORS, logits_of, random_inputs
from ffscope.models.lenses.norm import NormLens
from ffscope.models.parts import activation
from ffscope.models.tolerance import relative_error, sum_error, tolerance
from ffscope.models.unembedding import make_unembedding

_COMMON = ("silu", "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu", "tanh", "sigmoid")


@dataclass
class _Recording:
    """The inputs and outputs of the modules in one pass, in the order in which they finished."""

    into: dict[str, Tensor] = field(default_factory=dict)
    out: dict[str, Tensor] = field(default_factory=dict)
    repeated: set[str] = field(default_factory=set)  # ran more than once, so they have no single tensor
    result: Any = None

    def below(self, prefix: str) -> "_Recording":
        """The recording within one block, with paths relative to the block; `.` is the block itself."""

        def inside(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            paths = (path for path in tensors if f"{path}.".startswith(f"{prefix}."))
            return {path[len(prefix) + 1 :] or ".": tensors[path] for path in paths}

        return _Recording(inside(self.into), inside(self.out))


def discover(model: Any) -> Family:
    """The row of an unknown model; raises LayoutError, saying what was expected and found, if there is none."""
    recording = _run(model)
    stacks = _stacks(model, recording)
    paths = [path for stack in stacks for path, _ in _blocks(model, stack)]
    layouts = [_layout(model, find(model, path), recording.below(path)) for path in paths]
    complete = [layout for layout in layouts if layout is not None]
    if not complete:
        raise LayoutError(_no_layout_message(model, stacks))
    if len(complete) < len(layouts):
        bare = paths[layouts.index(None)]
        raise LayoutError(
            f"A feed-forward layer was found in {len(complete)} of {len(layouts)} blocks, but none in {bare} "
            f"({type(find(model, bare)).__name__}). Expected one in every block: skipping some would number the layers wrongly."
        )
    base = _prefix(model)
    return Family(
        stacks=tuple(stack.removeprefix(base) for stack in stacks),
        blocks=tuple(complete),
        tops=_tops(model, recording, paths[-1], complete[-1]),
        in_order=True,
    )


@torch.no_grad()
def _run(model: Any) -> _Recording:
    recording = _Recording()
    with ExitStack() as stack:
        for path, module in model.named_modules():
            stack.enter_context(_record(recording, path, module))
        recording.result = model(**random_inputs(model, batch=1, length=6))
    for path in recording.repeated:
        recording.into.pop(path, None)
        recording.out.pop(path, None)
    return recording


@contextmanager
def _record(recording: _Recording, path: str, module: nn.Module) -> Iterator[None]:
    def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        candidates = (kwargs.get("hidden_states"), *args, *kwargs.values())
        tensors = [value for value in candidates if isinstance(value, Tensor)]
        if tensors and tensors[0].is_floating_point():
            recording.into[path] = first_tensor(tensors).clone()

    def after(_module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:
        if path in recording.out:
            recording.repeated.add(path)
        candidates = output if isinstance(output, tuple) else (output,)
        if candidates and isinstance(candidates[0], Tensor) and candidates[0].is_floating_point():
            recording.out[path] = candidates[0].clone()

    with hooked(module, "in", before), hooked(module, "out", after):
        yield


def _stacks(model: Any, recording: _Recording) -> list[str]:
    """The outermost lists of modules that ran one after another on tensors of the same shape."""
    stacks: list[str] = []
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{stack}.") for stack in stacks)
        if inside or not isinstance(module, nn.ModuleList) or not len(module):
            continue
        shapes = {recording.into[name].shape for name in _names(path, module) if name in recording.into}
        ran = all(name in recording.out for name in _names(path, module))
        if ran and len(shapes) == 1 and all(len(list(block.parameters())) for block in module):
            stacks.append(path)
    return stacks


def _names(path: str, modules: nn.ModuleList) -> list[str]:
    return [f"{path}.{i}" for i in range(len(modules))]


def _blocks(model: Any, stack: str) -> Iterator[tuple[str, nn.Module]]:
    modules = find(model, stack)
    yield from zip(_names(stack, modules), modules, strict=True)


def _layout(model: Any, block: nn.Module, recording: _Recording) -> Block | None:
    limit = tolerance(model.dtype)
    parts: tuple[Dense | Experts, ...] = (*_experts(block, recording), *_dense(model.config, block, recording, limit))
    candidates = (_find_sum(block, recording, variant, limit) for variant in _with_weights(block, recording, parts))
    return next((layout for layout in candidates if layout is not None), None)


def _with_weights(
    block: nn.Module, recording: _Recording, parts: tuple[Dense | Experts, ...]
) -> Iterator[tuple[Dense | Experts, ...]]:
    """The parts unchanged; then with each dense part in turn multiplied by the sigmoid of a projection to one number."""
    if not parts:
        return
    yield parts
    for path, module in block.named_modules():
        if isinstance(module, nn.Linear) and module.out_features == 1 and path in recording.out:
            for i, part in enumerate(parts):
                if isinstance(part, Dense):
                    yield (*parts[:i], replace(part, weight=path), *parts[i + 1 :])


def _part_output(recording: _Recording, part: Dense | Experts) -> Tensor:
    """What a part adds to the sum, one row per token."""
    if isinstance(part, Experts):
        return recording.out[part.path].flatten(0, -2)
    output = recording.out[part.value].flatten(0, -2)
    return output * recording.out[part.weight].flatten(0, -2).sigmoid() if part.weight else output


def _experts(block: nn.Module, recording: _Recording) -> Iterator[Experts]:
    for path, module in block.named_modules():
        weights: Any = getattr(module, "down_proj", None)
        if (
            isinstance(weights, nn.Parameter)
            and weights.dim() == 3
            and hasattr(module, "is_transposed")
            and path in recording.out
        ):
            yield Experts(path)


def _dense(config: Any, block: nn.Module, recording: _Recording, limit: float) -> Iterator[Dense]:
    """Every projection whose input is an activation of other projections."""
    acts = [*_activation_modules(block, recording), *(f"fn:{name}" for name in _activation_names(config))]
    linear = [
        path
        for path, m in block.named_modules()
        if isinstance(m, nn.Linear | Conv1D) and path in recording.into and path in recording.out
    ]
    hidden = recording.into["."].shape[-1]
    for value in linear:
        memories = recording.into[value].shape[-1]
        sources = [
            path
            for path in linear
            if path != value
            and recording.into[path].shape[-1] == hidden
            and recording.out[path].shape[-1] in (memories, 2 * memories)
        ]
        match = next(_matches(block, recording, value, sources, acts, limit), None)
        if match is not None and recording.out[value].shape[-1] == hidden:
            yield match


def _matches(
    block: nn.Module, recording: _Recording, value: str, sources: list[str], acts: list[str], limit: float
) -> Iterator[Dense]:
    coefficients = recording.into[value]
    for act in acts:
        apply = activation(block, act)
        for key in sources:
            product = recording.out[key]
            if product.shape[-1] == coefficients.shape[-1] and relative_error(apply(product), coefficients) <= limit:
                yield Dense(key=key, value=value, act=act)
            if product.shape[-1] == 2 * coefficients.shape[-1]:
                first, second = product.chunk(2, -1)
                if relative_error(apply(first) * second, coefficients) <= limit:
                    yield Dense(key=key, value=value, act=act, fused="gate-key")
                if relative_error(first * apply(second), coefficients) <= limit:
                    yield Dense(key=key, value=value, act=act, fused="key-gate")
        for gate, key in permutations(sources, 2):
            a, b = recording.out[gate], recording.out[key]
            if a.shape == b.shape == coefficients.shape and relative_error(apply(a) * b, coefficients) <= limit:
                yield Dense(gate=gate, key=key, value=value, act=act)


def _activation_modules(block: nn.Module, recording: _Recording) -> list[str]:
    """The modules of the block that could be an activation: without parameters or submodules, and shape-preserving."""
    return [
        path
        for path, module in block.named_modules()
        if not list(module.children())
        and not list(module.parameters())
        and not isinstance(module, nn.Dropout | nn.Identity)
        and path in recording.into
        and path in recording.out
        and recording.into[path].shape == recording.out[path].shape
    ]


def _activation_names(config: Any) -> list[str]:
    """The activations that the config names, then common ones."""
    named = [value for value in config.to_dict().values() if isinstance(value, str) and value in ACT2FN]
    return list(dict.fromkeys([*named, *_COMMON]))


def _find_sum(
    block: nn.Module, recording: _Recording, parts: tuple[Dense | Experts, ...], limit: float
) -> Block | None:
    """Find sites of r, y and o with r + scale·y = o."""
    outputs = [_part_output(recording, part) for part in parts]
    if any(tensor.shape != outputs[0].shape for tensor in outputs):
        return None
    summed = torch.stack(outputs).sum(0)
    for post, update in _updates(block, recording, summed, limit):
        y = recording.out[update].flatten(0, -2)
        for output in _outputs(recording, limit):
            o = _tensor(recording, output).flatten(0, -2)
            if o.shape != y.shape:
                continue
            for residual, r in _residuals(recording, o.shape):
                for scale in (1.0, _fit_scale(o - r, y)):
                    if scale > 0.01 and sum_error(o, r, scale * y) <= limit:
                        return Block(parts, residual, output, post, f"out:{update}", scale)
    return None


def _fit_scale(target: Tensor, term: Tensor) -> float:
    """The least-squares factor that scales `term` to `target`."""
    return round(((target.double() * term).sum() / term.double().square().sum()).item(), 6)


def _updates(block: nn.Module, recording: _Recording, summed: Tensor, limit: float) -> Iterator[tuple[str | None, str]]:
    """Modules whose output is the sum of the parts, or a norm of it."""
    for path, tensor in recording.out.items():
        if path != "." and relative_error(tensor, summed) <= limit:
            yield None, path
    for path, tensor in recording.into.items():
        plain = not any(isinstance(module, nn.Linear | Conv1D) for module in find(block, path).modules())
        if path != "." and plain and path in recording.out and relative_error(tensor, summed) <= limit:
            yield path, path


def _outputs(recording: _Recording, limit: float) -> Iterator[str]:
    yield "out:."
    for path, tensor in recording.out.items():
        if path != "." and path in recording.into and relative_error(tensor, recording.out["."]) <= limit:
            yield f"in:{path}"


def _residuals(recording: _Recording, shape: torch.Size) -> Iterator[tuple[str, Tensor]]:
    """Tensors of the residual's shape, then sums of the block's input and one such output (for parallel blocks)."""
    sites = [(f"in:{path}", tensor) for path, tensor in recording.into.items()]
    sites += [(f"out:{path}", tensor) for path, tensor in recording.out.items() if path != "."]
    same_shape = [(site, tensor.flatten(0, -2)) for site, tensor in sites if tensor.flatten(0, -2).shape == shape]
    yield from same_shape
    start = recording.into["."].flatten(0, -2)
    yield from ((f"in:. + {site}", start + tensor) for site, tensor in same_shape if site.startswith("out:"))


def _tensor(recording: _Recording, site: str) -> Tensor:
    side, _, path = site.partition(":")
    return (recording.into if side == "in" else recording.out)[path]


def _tops(model: Any, recording: _Recording, path: str, layout: Block) -> tuple[Top, ...]:
    """The steps between the last block and the logits."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None:
        return ()
    state, expected = _tensor(recording.below(path), layout.output), logits_of(recording.result)
    if expected is None:
        return ()
    for top in _top_candidates(model, recording, path, layout):
        try:
            logits = NormLens(model, top, make_unembedding(head)).logits(state)
        except MODEL_ERRORS:  # a module that needs more arguments than the state
            continue
        for scale in (1.0, _fit_scale(expected, logits)):
            if relative_error(logits * scale, expected) <= tolerance(model.dtype):
                return (replace(top, scale=scale),)
    raise LayoutError(
        f"Expected modules that compute the logits of {type(model).__name__} from its last output, found none that reproduce them."
    )


def _top_candidates(model: Any, recording: _Recording, path: str, layout: Block) -> Iterator[Top]:
    """The modules that ran after the last block; then the same with an activation that the head may call as a function."""
    names = {module: name for name, module in model.named_modules()}
    head = names[model.get_output_embeddings()]
    after = list(recording.out)[list(recording.out).index(path) + 1 :]
    leaves = [
        name
        for name in after[: after.index(head)]
        if not list(find(model, name).children())
        and name in recording.into
        and not isinstance(find(model, name), nn.Dropout)
    ]
    if layout.output != "out:.":
        leaves.insert(0, f"{path}.{layout.output.removeprefix('in:')}")
    cap = "final_logit_softcapping" if getattr(model.config, "final_logit_softcapping", None) else None
    bias = "final_logits_bias" if hasattr(model, "final_logits_bias") else None
    yield Top(tuple(leaves), cap=cap, bias=bias)
    for act in _activation_names(model.config):
        yield Top(
            tuple(
                step
                for leaf in leaves
                for step in ((leaf, f"fn:{act}") if isinstance(find(model, leaf), nn.Linear) else (leaf,))
            )
        )


def _prefix(model: Any) -> str:
    """The path of the base model within the model, ending in a dot; empty if they are the same."""
    return next((f"{name}." for name, module in model.named_modules() if name and module is model.base_model), "")


def _no_layout_message(model: Any, stacks: list[str]) -> str:
    expected = (
        "Expected in every block a projection back to the residual whose input is an activation of other projections of the "
        "block, or stacked experts"
    )
    if not stacks:
        return f"{expected}; found no stack of blocks in {type(model).__name__}."
    block = max((find(model, stack)[0] for stack in stacks), key=lambda block: len(list(block.modules())))
    leaves = [(path, module) for path, module in block.named_modules() if path and not list(module.children())]
    contents = ", ".join(f"{path} ({type(module).__name__})" for path, module in leaves[:12])
    contents += " …" if len(leaves) > 12 else ""
    return f"{expected}; found in a {type(block).__name__}: {contents}, and none fits."
