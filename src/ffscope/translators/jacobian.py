"""Mean Jacobians of the layers above, from every state to the last output (Gurnee et al. 2026).

For each dimension of the last output, a cotangent of 1 at all tokens of a sentence is carried back. What arrives at a token is the
sum over the tokens that it can affect: in a causal model itself and those after it. This is averaged over the tokens of a sentence,
and then over sentences. BOS is neither a source nor a target.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import torch
from torch import Tensor

from ffscope.axes import Array, Float
from ffscope.effects.texts import texts_at_once
from ffscope.errors import GradientError, InputError, first_line
from ffscope.models.attention import kernels_for_any_shape
from ffscope.models.gradient_pass import frozen_weights
from ffscope.models.hooks import Site, tap
from ffscope.models.inputs import run
from ffscope.models.lenses.learned.base import Key
from ffscope.models.memory_model import MemoryModel, StopPass
from ffscope.search.passes import sentence_inputs
from ffscope.translators.states import translated_states

Jacobians = dict[Key, Float[Tensor, "hidden hidden"]]


def sentence_jacobians(model: MemoryModel, sentence: Array, bos: int | None) -> Jacobians:
    """The mean Jacobians over one sentence, in float32."""
    length, hidden = len(sentence), model.hidden
    copies = min(hidden, texts_at_once(model, length + 1))
    observed, last = _run(model, sentence, bos, copies)
    rows: dict[Key, list[Tensor]] = {key: [] for key in observed}
    for start in range(0, hidden, copies):
        count = min(copies, hidden - start)
        cotangent = torch.zeros_like(last).reshape(copies, -1, hidden)
        at = torch.arange(count, device=last.device)
        cotangent[at, -length:, start + at] = 1
        more = start + copies < hidden
        gradients = _gradients(last, list(observed.values()), cotangent.reshape(last.shape), again=more)
        for key, gradient in zip(observed, gradients, strict=True):
            shaped = gradient.reshape(copies, -1, hidden)[:count, -length:]
            rows[key].append(shaped.float().mean(1).to(model.device))
    return {key: torch.cat(parts) for key, parts in rows.items()}


def _run(model: MemoryModel, sentence: Array, bos: int | None, copies: int) -> tuple[dict[Key, Tensor], Tensor]:
    """The states of a pass over copies of a sentence, and the last output, with their graph."""
    observed: dict[Key, Tensor] = {}
    keys = set(translated_states(model))
    last_layer = model.layers - 1
    outputs: list[Tensor] = []

    def stop(output: Tensor) -> None:
        outputs.append(output)
        raise StopPass

    with ExitStack() as stack:
        for layer in model.predicting_layers:
            for key, site in _sites(model, layer):
                if key in keys:
                    stack.enter_context(_keeping(model, layer, site, key, observed))
        last = model.layer(last_layer)
        stack.enter_context(tap(last.module(last.output_site), last.output_site.side, stop))
        stack.enter_context(frozen_weights(model))
        stack.enter_context(_graph_from_first_layer(model))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(kernels_for_any_shape(model.device))
        inputs = sentence_inputs(model, sentence[None].repeat(copies, 0), bos)
        with suppress(StopPass):
            _forward(model, inputs)
    return {key: observed[key] for key in translated_states(model)}, outputs[0]


def _forward(model: MemoryModel, inputs: dict[str, Tensor]) -> None:
    try:
        run(model.model, inputs)
    except InputError as error:
        raise GradientError(f"The Jacobian of this model cannot be computed: {first_line(error)}") from error


def _sites(model: MemoryModel, layer: int) -> Iterator[tuple[Key, Site]]:
    """Where the states of a layer are. Of a residual that is a sum, the attention's output: the sum has the same gradient."""
    ff = model.layer(layer)
    sites = ff.residual_sites
    yield ("residual", layer), next((site for site in sites if site.side == "out"), sites[0])
    yield ("output", layer), ff.output_site


@contextmanager
def _keeping(model: MemoryModel, layer: int, site: Site, key: Key, observed: dict[Key, Tensor]) -> Iterator[None]:
    def keep(tensor: Tensor) -> None:
        observed[key] = tensor

    with tap(model.layer(layer).module(site), site.side, keep):
        yield


@contextmanager
def _graph_from_first_layer(model: MemoryModel) -> Iterator[None]:
    """Let the graph of a pass begin at the first block that leads to the logits, since no weight requires a gradient."""

    def begin(states: Tensor) -> None:
        states.requires_grad_()

    with tap(model.layer(model.predicting_layers[0]).block, "in", begin):
        yield


def _gradients(last: Tensor, states: list[Tensor], cotangent: Tensor, *, again: bool) -> tuple[Tensor, ...]:
    try:
        return torch.autograd.grad(last, states, cotangent, retain_graph=again)
    except RuntimeError as error:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            raise
        raise GradientError(
            f"The Jacobian of this model cannot be computed: {first_line(error)}. Expected floating-point weights whose modules "
            "support gradients. Leave the lens out with --jacobian-sentences 0."
        ) from error
