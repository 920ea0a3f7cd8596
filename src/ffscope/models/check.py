"""The identities that prove a model was read exactly."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from ffscope.errors import InputError, ProofError
from ffscope.memory_name import Memory
from ffscope.models.edits import Name
from ffscope.models.feed_forward import FeedForward
from ffscope.models.hooks import hooked, tap
from ffscope.models.inputs import Inputs, random_inputs
from ffscope.models.memory_model import MemoryModel, Trace
from ffscope.models.parts import Arguments, Part
from ffscope.models.tolerance import relative_error, sum_error, tolerance

KEYS = "keys make the coefficients"
VALUES = "coefficients and values make the update"
SUM = "residual + update = output"
LENS = "lens on the last output = the model's own logits"
REMOVAL = "output - output without the update = update"
NO_CHANGE = "coefficients set to their own value change nothing"
ZERO = "every memory zeroed = update without its memories"


@dataclass(frozen=True)
class Finding:
    """The largest relative error of one identity over a range of layers."""

    identity: str
    layers: tuple[int, ...]
    error: float
    tolerance: float

    @property
    def holds(self) -> bool:
        return self.error <= self.tolerance  # NaN does not


@dataclass
class _Calls:
    """The arguments of each block and of each part's key in one pass."""

    blocks: dict[int, Arguments] = field(default_factory=dict)
    parts: dict[Part, Arguments] = field(default_factory=dict)
    counts: dict[Part, int] = field(default_factory=dict)


def prove(model: MemoryModel) -> None:
    """Check the cheap identities, in one pass over a few random tokens; raise ProofError if one fails."""
    errors, _, _ = _one_pass(model, random_inputs(model.model, batch=1, length=5))
    _raise_failed(model, _grouped(errors, model.dtype))


def prove_all(model: MemoryModel) -> None:
    """Check every identity; raise ProofError if one fails."""
    _raise_failed(model, check(model))


def check(model: MemoryModel) -> list[Finding]:
    """Every identity for every layer, over a few random tokens."""
    try:
        return _check(model, random_inputs(model.model, batch=2, length=7))
    except InputError:  # some heads take only one text at a time
        return _check(model, random_inputs(model.model, batch=1, length=7))


def _check(model: MemoryModel, inputs: Inputs) -> list[Finding]:
    errors, trace, calls = _one_pass(model, inputs)
    errors[REMOVAL] = _removal(model, trace, calls)
    errors[NO_CHANGE] = _no_change(model, inputs, trace)
    errors[ZERO] = _zeroed(model, trace, calls)
    return _grouped(errors, model.dtype)


Errors = dict[str, dict[int, float]]


def _one_pass(model: MemoryModel, inputs: Inputs) -> tuple[Errors, Trace, _Calls]:
    """The errors of the identities that one traced pass can check."""
    calls = _Calls()
    with _recording(model, calls):
        trace = model.trace(inputs)
    errors: Errors = {KEYS: {}, VALUES: {}, SUM: {}}
    with torch.no_grad():
        for index in trace.layers:
            layer, coefficients = model.layer(index), trace.coefficients[index]
            arguments = [calls.parts[part] for part in layer.parts]
            recomputed = [
                part.recompute(call).flatten(0, -2) for part, call in zip(layer.parts, arguments, strict=True)
            ]
            errors[KEYS][index] = relative_error(torch.cat(recomputed, -1), coefficients)
            errors[VALUES][index] = relative_error(
                layer.update(_by_part(layer, coefficients), arguments), trace.update[index]
            )
            errors[SUM][index] = sum_error(*_flat(trace.output[index], trace.residual[index], trace.update[index]))
        if model.top is not None:
            if trace.logits is None:
                raise ProofError(
                    f"{type(model.model).__name__} has an unembedding but returns no logits, so the lens cannot be checked."
                )
            last = trace.layers[-1]
            errors[LENS] = {
                last: relative_error(model.lens("norm").states(trace.output[last], last, "output"), trace.logits)
            }
    return errors, trace, calls


@torch.no_grad()
def _removal(model: MemoryModel, trace: Trace, calls: _Calls) -> dict[int, float]:
    """Run each block again with its update set to zero."""
    errors = {}
    for index in trace.layers:
        layer = model.layer(index)
        with tap(layer.module(layer.update_site), "out", torch.zeros_like):
            without = _replay(layer, calls.blocks[index])
        errors[index] = sum_error(*_flat(trace.output[index], without, trace.update[index]))
    return errors


@torch.no_grad()
def _zeroed(model: MemoryModel, trace: Trace, calls: _Calls) -> dict[int, float]:
    """Run each block again with all its memories edited to 0, which leaves only the bias of the update."""
    errors = {}
    for index in trace.layers:
        layer = model.layer(index)
        with model.edit(zero=[f"L{index}"]):
            without = _replay(layer, calls.blocks[index])
        zeros = [torch.zeros_like(part) for part in _by_part(layer, trace.coefficients[index])]
        bias = layer.update(zeros, [calls.parts[part] for part in layer.parts])
        # The output must lack exactly what the memories contributed; the error is relative to that contribution.
        contribution = trace.update[index].flatten(0, -2) - bias
        errors[index] = sum_error(*_flat(trace.output[index], without, contribution))
    return errors


def _no_change(model: MemoryModel, inputs: Inputs, trace: Trace) -> dict[int, float]:
    """Run the model again with a few memories of every layer set, at the last position, to the values they had."""
    own: dict[Name, int | float] = {}
    for index in trace.layers:
        coefficients = trace.coefficients[index][0, -1]
        for memory in torch.linspace(0, coefficients.numel() - 1, 3).long().tolist():
            own[Memory(index, memory)] = coefficients[memory].item()
    if not all(map(math.isfinite, own.values())):
        return dict.fromkeys(trace.layers, math.nan)
    with model.edit(set=own, positions=-1):
        again = model.trace(_first(inputs))
    return {index: relative_error(again.output[index], trace.output[index][:1]) for index in trace.layers}


def _flat(*states: Tensor) -> list[Tensor]:
    return [state.reshape(-1, state.shape[-1]) for state in states]


def _first(inputs: Inputs) -> Inputs:
    return {name: value[:1] if isinstance(value, Tensor) else value for name, value in inputs.items()}


def _by_part(layer: FeedForward, coefficients: Tensor) -> list[Tensor]:
    return list(coefficients.flatten(0, -2).split([part.memories for part in layer.parts], -1))


def _replay(layer: FeedForward, arguments: Arguments) -> Tensor:
    """The output of one block, called again with the same arguments."""
    observed: list[Tensor] = []
    site = layer.output_site
    with tap(layer.module(site), site.side, lambda tensor: observed.append(tensor.clone())):
        layer.block(*arguments[0], **arguments[1])
    return observed[0]


@contextmanager
def _recording(model: MemoryModel, calls: _Calls) -> Iterator[None]:
    """Record the arguments of every block and of every part's key, and count the calls."""
    with ExitStack() as stack:
        for index in range(model.layers):
            layer = model.layer(index)
            stack.enter_context(_on_call(layer.block, partial(calls.blocks.__setitem__, index)))
            for part in layer.parts:
                stack.enter_context(_on_call(part.source, partial(_count, calls, part)))
        yield
    for index in range(model.layers):
        for part in model.layer(index).parts:
            times = calls.counts.get(part, 0)
            if times != 1:
                raise ProofError(
                    f"Feed-forward layer {index} of this {model.model_type} ran {times} times in one pass; "
                    "expected once. Its coefficients cannot be assigned to positions, so this model is not supported."
                )


def _count(calls: _Calls, part: Part, arguments: Arguments) -> None:
    calls.parts[part] = arguments
    calls.counts[part] = calls.counts.get(part, 0) + 1


def _on_call(module: nn.Module, keep: Callable[[Arguments], Any]) -> AbstractContextManager[None]:
    def observe(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        keep((tuple(map(_copy, args)), {name: _copy(value) for name, value in kwargs.items()}))

    return hooked(module, "in", observe)


def _copy(value: Any) -> Any:
    if hasattr(value, "get_seq_length"):  # a cache: in a second run the block would find its own keys in it
        return None
    return value.clone() if isinstance(value, Tensor) else value


def _grouped(errors: Errors, dtype: torch.dtype) -> list[Finding]:
    """One finding per identity and range of consecutive layers that all pass or all fail."""
    limit = tolerance(dtype)
    findings = []
    for identity, by_layer in errors.items():
        for _, run in groupby(by_layer.items(), key=lambda item: item[1] <= limit):
            layers, sizes = zip(*run, strict=True)
            worst = max(sizes, key=lambda size: (size != size, size))  # NaN counts as the largest
            findings.append(Finding(identity, layers, worst, limit))
    return findings


def _raise_failed(model: MemoryModel, findings: list[Finding]) -> None:
    finding = next((finding for finding in findings if not finding.holds), None)
    if finding is None:
        return
    first, last = finding.layers[0], finding.layers[-1]
    where = f"layer {first}" if first == last else f"layers {first} to {last}"
    origin = "discovered layout" if model.discovered else f"layout of {model.model_type!r}"
    raise ProofError(
        f"The {origin} does not fit this model: the identity «{finding.identity}» has a relative error of {finding.error:.1e} in "
        f"{where}, expected at most {finding.tolerance:.0e}. Its memories would be read wrongly, so it is refused."
    )
