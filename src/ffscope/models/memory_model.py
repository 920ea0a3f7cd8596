"""A transformer as key–value memories: keys, values, coefficients, states, edits."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.errors import MemoryNameError, ProofError
from ffscope.memory_name import Memory, parse_name
from ffscope.models.attention import kernels_for_any_shape
from ffscope.models.edits import Edit, Names, Numbers, Positions, parse_changes
from ffscope.models.families import Family, Top
from ffscope.models.feed_forward import FeedForward, Keys
from ffscope.models.here import model_here
from ffscope.models.hooks import tap
from ffscope.models.inputs import Inputs, Source, encode, logits_of, max_positions, random_inputs, run
from ffscope.models.layout import feed_forwards, find_top
from ffscope.models.lenses import is_learned, make_lens
from ffscope.models.lenses.base import Lens
from ffscope.models.parts import Part, Reader
from ffscope.models.placement import input_device

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Trace:
    """The tensors of one pass, layer by layer. Layers may differ in positions (two stacks) and in memories."""

    inputs: dict[str, Any]
    tokens: list[list[str]] | None  # in the tokenizer's own spelling; None without a tokenizer
    layers: tuple[int, ...]
    coefficients: list[Float[Tensor, "batch _pos _memory"]]
    residual: list[Float[Tensor, "batch _pos hidden"]]
    update: list[Float[Tensor, "batch _pos hidden"]]
    output: list[Float[Tensor, "batch _pos hidden"]]
    logits: Float[Tensor, "batch _pos vocab"] | None  # None if the model has no unembedding

    def __repr__(self) -> str:
        batch, positions = self.coefficients[0].shape[:2]
        return f"Trace({len(self.layers)} layers, batch {batch}, {positions} positions)"

    @property
    def ids(self) -> Int[Tensor, "batch pos"]:
        """The input token ids, BOS included."""
        return self.inputs["input_ids"]


class States(NamedTuple):
    """The tensors of one pass at n chosen places (batch row and position), layer by layer."""

    coefficients: list[Float[Tensor, "n _memory"]]
    residual: list[Float[Tensor, "n hidden"]]
    update: list[Float[Tensor, "n hidden"]]
    output: list[Float[Tensor, "n hidden"]]


class StopPass(Exception):
    """Raised during a pass to end it as soon as everything needed has been observed."""


class MemoryModel:
    """A transformers model whose feed-forward layers are read as memories. `load` returns one that is proven."""

    def __init__(
        self, model: Any, tokenizer: Any, family: Family, *, discovered: bool = False, source: str = ""
    ) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.family = family
        self.discovered = discovered
        self.source = source
        self.named_type: str | None = None  # the type that the user gave, where config.json has none
        self._layers = feed_forwards(model, family)
        if getattr(model, "hf_device_map", None):  # spread over devices: what is read from it comes together on one
            for layer in self._layers:
                layer.device = self.device
        self._lenses: dict[tuple[str, Path | None], Lens] = {}

    def __repr__(self) -> str:
        memories = self.memories[0] if len(set(self.memories)) == 1 else list(self.memories)
        kind = "gated" if self.gated else "plain"
        return (
            f"MemoryModel({self.model_type}, {self.layers} layers × {memories} memories, {kind}, hidden {self.hidden})"
        )

    def __reduce__(self) -> Any:
        """Pickled by reference: on another machine, it is the model that is loaded there."""
        return model_here, ()

    @property
    def model_type(self) -> str:
        """The family's name, `config.model_type`."""
        return self.model.config.model_type

    @property
    def layers(self) -> int:
        """The number of feed-forward layers; an encoder's come before its decoder's."""
        return len(self._layers)

    @cached_property
    def memories(self) -> tuple[int, ...]:
        """The number of memories in each layer."""
        return tuple(layer.memories for layer in self._layers)

    @property
    def gated(self) -> bool:
        """Whether all layers are gated, so that each key is a pair (gate, key)."""
        return all(layer.gated for layer in self._layers)

    @cached_property
    def hidden(self) -> int:
        """The width of the residual."""
        return self._layers[-1].values().shape[1]

    @property
    def vocab(self) -> int | None:
        """The number of input embeddings; None if the input is not text."""
        embeddings = self.model.get_input_embeddings()
        return getattr(embeddings, "num_embeddings", None)

    @property
    def positions(self) -> int | None:
        """The maximum length of a text in tokens; None if the model sets no limit."""
        limit = max_positions(self.model)
        return None if limit is None else limit - self._reserved

    @property
    def _reserved(self) -> int:
        return (self.model.config.pad_token_id or 0) + 1 if self.family.positions_after_pad else 0

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def device(self) -> torch.device:
        """The device of its inputs, and of everything that is read from it."""
        return input_device(self.model)

    @cached_property
    def causal(self) -> bool:
        """Whether a position attends only to earlier ones. Tested by changing the last token: no other coefficient may change."""
        inputs = random_inputs(self.model, batch=1, length=min(8, self.positions or 8))
        if "input_ids" not in inputs:  # positions in an image have no order
            return False
        ids = inputs["input_ids"]
        other = ids.clone()
        other[0, -1] = (ids[0, -1] + 1) % (self.vocab or 1)
        runs = (self.trace({**inputs, "input_ids": variant}).coefficients for variant in (ids, other))
        return all(_nearly_equal(a[:, :-1], b[:, :-1]) for a, b in zip(*runs, strict=True))

    @property
    def predicting_layers(self) -> range:
        """The layers that lead to the logits: all of them, or those of the decoder, which come after the encoder's."""
        return range(max(index for index, layer in enumerate(self._layers) if layer.parts[0].depth == 0), self.layers)

    @cached_property
    def top(self) -> Top | None:
        """The steps between the last output and the logits, from the family's row."""
        return find_top(self.model, self.family)

    def layer(self, index: Any) -> FeedForward:
        """One feed-forward layer. Negative indices are refused, since the names of memories have none."""
        if not isinstance(index, int) or not 0 <= index < self.layers:
            raise MemoryNameError(f"There is no layer {index!r}. This model has layers 0 to {self.layers - 1}.")
        return self._layers[index]

    def memory(self, name: str | Memory | tuple[int, int]) -> Memory:
        """The memory of that name; raises if this model has no such memory."""
        memory = Memory.parse(name) if isinstance(name, str) else Memory(*name)
        count = self.layer(memory.layer).memories
        if not 0 <= memory.memory < count:
            raise MemoryNameError(f"There is no memory {memory}. Layer {memory.layer} has memories 0 to {count - 1}.")
        return memory

    def keys(self, layer: Any) -> Keys:
        """The keys, memory × hidden, as stored in the model; a pair (gate, key) for a gated layer."""
        return self.layer(layer).keys()

    def values(self, layer: Any) -> Float[Tensor, "memory hidden"]:
        """The values: the rows of the output projection. They may share memory with the model, so copy them before changing one."""
        return self.layer(layer).values()

    def lens(self, name: str = "norm", study: Path | str | None = None) -> Lens:
        """The lens of that name, which reads vectors as logits; `ffscope.models.lenses` has one module per lens.

        `study` is the folder of the study that a learned lens is saved with.
        """
        key = name, Path(study) if study is not None and is_learned(name) else None
        if key not in self._lenses:
            self._lenses[key] = make_lens(name, self.model, self.top, self._layers, key[1])
        return self._lenses[key]

    def encode(self, text: Source, *, bos: bool = True) -> Inputs:
        """Text, token ids or ready-made inputs as the model's keyword arguments, checked."""
        return encode(self.model, self.tokenizer, text, bos=bos, reserved=self._reserved)

    @torch.no_grad()
    def forward(self, inputs: Inputs) -> Any:
        """One pass of the model, with the edits and taps that are active in this thread."""
        with kernels_for_any_shape(self.device):
            return run(self.model, inputs)

    def trace(self, text: Source, *, bos: bool = True, layers: Iterable[int] | None = None) -> Trace:
        """Coefficients, residual, update and output of every layer and position, and the logits.

        A text is prefixed with the BOS token unless `bos=False`; token ids are used unchanged.
        """
        inputs = self.encode(text, bos=bos)
        chosen = tuple(range(self.layers) if layers is None else layers)
        recorders = [_LayerRecorder(self.layer(index)) for index in chosen]
        with ExitStack() as stack:
            for recorder in recorders:
                stack.enter_context(recorder.attached())
            result = self.forward(inputs)
        return Trace(
            inputs=inputs,
            tokens=self._spell(inputs),
            layers=chosen,
            coefficients=[recorder.coefficients() for recorder in recorders],
            residual=[recorder.residual() for recorder in recorders],
            update=[recorder.update() for recorder in recorders],
            output=[recorder.output() for recorder in recorders],
            logits=None if self.top is None else logits_of(result),
        )

    def states_at(
        self,
        inputs: Inputs,
        rows: Int[Tensor, "n"],
        positions: Int[Tensor, "n"],
        *,
        layers: Iterable[int] | None = None,
        coefficients: bool = True,
    ) -> States:
        """The tensors of all or some layers at chosen places of a batch only; the pass ends after the last of these layers.

        Without `coefficients`, which need most of the memory, there are none. Negative positions count from the end, in an
        encoder–decoder from the end of each stack.
        """
        chosen = self._layers if layers is None else [self.layer(layer) for layer in layers]
        at = len(inputs["input_ids"]), rows, positions
        recorders = [_LayerRecorder(layer, at=at, parts=coefficients) for layer in chosen]
        with ExitStack() as stack, suppress(StopPass):
            for recorder in recorders:
                stack.enter_context(recorder.attached(_stop_when_complete(recorders)))
            self.forward(inputs)
        return States(
            coefficients=[recorder.coefficients() for recorder in recorders] if coefficients else [],
            residual=[recorder.residual() for recorder in recorders],
            update=[recorder.update() for recorder in recorders],
            output=[recorder.output() for recorder in recorders],
        )

    @contextmanager
    def edit(
        self,
        *,
        zero: Names = (),
        scale: Numbers = None,
        set: Numbers = None,
        positions: Positions = None,
    ) -> Iterator[None]:
        """Change coefficients within a `with` block, in this thread only: `with model.edit(zero=["L3.17"], scale={"L4.2": 5}): …`

        `L3` names every memory of a layer. Positions (one or several) count from 0, BOS included; negative ones count from the
        end of the input. Without positions the change applies everywhere. Edits nest: an inner edit acts on the coefficients
        that an outer one has changed.
        """
        changes = parse_changes(zero, {} if scale is None else scale, {} if set is None else set)
        edit = Edit(((memory, change) for name, change in changes for memory in self.memories_named(name)), positions)
        with ExitStack() as stack:
            for layer, reader in edit.readers():
                for part in self.layer(layer).parts:
                    stack.enter_context(part.tap(reader))
            yield

    def memories_named(self, name: Any) -> list[Memory]:
        """The memory of that name, or every memory of a layer: `L3.17`, `L3`."""
        if not isinstance(name, str | tuple):
            raise MemoryNameError(
                f"{name!r} is not a memory's name. Write it as 'L12.345', or 'L12' for a whole layer."
            )
        layer, memory = parse_name(name) if isinstance(name, str) else name
        if memory is not None:
            return [self.memory((layer, memory))]
        return [Memory(layer, index) for index in range(self.layer(layer).memories)]

    def _spell(self, inputs: Inputs) -> list[list[str]] | None:
        if self.tokenizer is None or "input_ids" not in inputs:
            return None
        # A vocabulary may be padded beyond the tokenizer's, so some ids have no spelling.
        rows = ((row, self.tokenizer.convert_ids_to_tokens(row)) for row in inputs["input_ids"].tolist())
        return [[token or f"#{id}" for id, token in zip(row, tokens, strict=True)] for row, tokens in rows]


class _LayerRecorder:
    """Copies of one layer's tensors in a pass; copies, since a model may change a tensor in place after the hook ran.

    With `at` (batch size, rows, positions) only those places are kept, place × width.
    """

    def __init__(self, layer: FeedForward, at: tuple[int, Tensor, Tensor] | None = None, *, parts: bool = True) -> None:
        self.layer = layer
        self._at = at
        self._read_parts = layer.parts if parts else []
        self._parts: dict[Part, Tensor] = {}
        self._terms: dict[str, Tensor] = {}
        self._sites = {*layer.residual_sites, layer.update_site, layer.output_site}

    @property
    def complete(self) -> bool:
        """Whether all of the layer has been observed."""
        return len(self._parts) == len(self._read_parts) and len(self._terms) == len(self._sites)

    @contextmanager
    def attached(self, then: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Record one pass; call `then` after each recorded tensor."""
        with ExitStack() as stack:
            for part in self._read_parts:
                stack.enter_context(part.tap(self._part_keeper(then)))
            for site in self._sites:
                observe = self._keeper(str(site), then)
                stack.enter_context(tap(self.layer.module(site), site.side, observe))
            yield

    def _part_keeper(self, then: Callable[[], None]) -> Reader:
        def keep(part: Part, coefficients: Tensor, _past: int) -> None:
            self._parts[part] = self._copy(coefficients)
            then()

        return keep

    def _keeper(self, name: str, then: Callable[[], None]) -> Callable[[Tensor], None]:
        def keep(tensor: Tensor) -> None:
            self._terms[name] = self._copy(tensor)
            then()

        return keep

    def _copy(self, tensor: Tensor) -> Tensor:
        if self._at is None:
            return tensor.clone().to(self.layer.device)
        batch, rows, positions = self._at  # some families flatten batch × position inside the block
        at = rows.to(tensor.device), positions.to(tensor.device)
        return tensor.reshape(batch, -1, tensor.shape[-1])[at].to(self.layer.device)

    def coefficients(self) -> Tensor:
        if len(self._parts) < len(self.layer.parts):
            raise ProofError(
                "The output projection of a feed-forward layer did not run in this pass, so its coefficients are unknown. "
                "Expected it to run; a block that computes the layer without calling its modules is not supported."
            )
        parts = [self._parts[part] for part in self.layer.parts]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -1)

    def residual(self) -> Tensor:
        terms = [self._term(str(site)) for site in self.layer.residual_sites]
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def update(self) -> Tensor:
        update = self._term(str(self.layer.update_site))
        return update if self.layer.scale == 1 else update * self.layer.scale

    def output(self) -> Tensor:
        return self._term(str(self.layer.output_site))

    def _term(self, name: str) -> Tensor:
        """A recorded tensor, at the chosen places or reshaped to the leading axes of the coefficients."""
        term = self._terms[name]
        return term if self._at else term.reshape(*next(iter(self._parts.values())).shape[:-1], -1)


def _stop_when_complete(recorders: list[_LayerRecorder]) -> Callable[[], None]:
    """A callback that ends the pass once every layer has been recorded."""

    def stop_if_complete() -> None:
        if all(recorder.complete for recorder in reversed(recorders)):
            raise StopPass

    return stop_if_complete


def _nearly_equal(a: Tensor, b: Tensor) -> bool:
    """Equal up to rounding: experts run on groups of tokens, so the last digits depend on the other tokens of a group."""
    return bool((a - b).abs().max() <= 8 * torch.finfo(a.dtype).eps * a.abs().max())
