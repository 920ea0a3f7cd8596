"""A transformer as key–value memories: keys, values, coefficients, states, edits."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ffscope.axes import Float, Int
from ffscope.errors import MemoryNameError, ProofError
from ffscope.memory_name import Memory, parse_name
from ffscope.models.edits import Edit, Names, Numbers, Positions, wanted_changes
from ffscope.models.families import Family, Top
from ffscope.models.feed_forward import FeedForward, Keys
from ffscope.models.hooks import tapping
from ffscope.models.inputs import Inputs, Source, encode, logits_of, positions, random_inputs, run
from ffscope.models.layout import feed_forwards, find_top
from ffscope.models.lenses import make_lens
from ffscope.models.lenses.base import Lens
from ffscope.models.parts import Part, Reader

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Trace:
    """What one pass held, layer by layer. Tensors of different layers may differ in positions (two stacks) and memories."""

    inputs: dict[str, Any]
    tokens: list[list[str]] | None  # as the tokenizer spells them; None without a tokenizer
    layers: tuple[int, ...]
    coefficients: list[Float[Tensor, "batch _pos _memory"]]
    residual: list[Float[Tensor, "batch _pos hidden"]]
    update: list[Float[Tensor, "batch _pos hidden"]]
    output: list[Float[Tensor, "batch _pos hidden"]]
    logits: Float[Tensor, "batch _pos vocab"] | None  # None where the model has no unembedding

    def __repr__(self) -> str:
        batch, positions = self.coefficients[0].shape[:2]
        return f"Trace({len(self.layers)} layers, batch {batch}, {positions} positions)"

    @property
    def ids(self) -> Int[Tensor, "batch pos"]:
        """The token ids that went in, BOS included."""
        return self.inputs["input_ids"]


class States(NamedTuple):
    """What a pass held at n chosen places, layer by layer."""

    coefficients: list[Float[Tensor, "n _memory"]]
    residual: list[Float[Tensor, "n hidden"]]
    update: list[Float[Tensor, "n hidden"]]
    output: list[Float[Tensor, "n hidden"]]


class EnoughSeen(Exception):
    """Raised in the middle of a pass when the last of what is wanted has been observed."""


class MemoryModel:
    """A transformers model whose feed-forward layers are read as memories. `load` makes and proves one."""

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
        self._lenses: dict[str, Lens] = {}

    def __repr__(self) -> str:
        memories = self.memories[0] if len(set(self.memories)) == 1 else list(self.memories)
        kind = "gated" if self.gated else "plain"
        return (
            f"MemoryModel({self.model_type}, {self.layers} layers × {memories} memories, {kind}, hidden {self.hidden})"
        )

    @property
    def model_type(self) -> str:
        """The family's name, `config.model_type`."""
        return self.model.config.model_type

    @property
    def layers(self) -> int:
        """How many feed-forward layers there are; an encoder's come before its decoder's."""
        return len(self._layers)

    @cached_property
    def memories(self) -> tuple[int, ...]:
        """How many memories each layer has."""
        return tuple(layer.memories for layer in self._layers)

    @property
    def gated(self) -> bool:
        """Whether every layer's key is a pair (gate, key)."""
        return all(layer.gated for layer in self._layers)

    @property
    def hidden(self) -> int:
        """The residual's width."""
        return self._layers[-1].values().shape[1]

    @property
    def vocab(self) -> int | None:
        """How many tokens the model has embeddings for; None where its input is not text."""
        embeddings = self.model.get_input_embeddings()
        return getattr(embeddings, "num_embeddings", None)

    @property
    def positions(self) -> int | None:
        """How many tokens a text may have; None where the model names no limit."""
        limit = positions(self.model)
        return None if limit is None else limit - self._reserved

    @property
    def _reserved(self) -> int:
        return (self.model.config.pad_token_id or 0) + 1 if self.family.positions_after_pad else 0

    @property
    def dtype(self) -> torch.dtype:
        return self.model.dtype

    @property
    def device(self) -> torch.device:
        return self.model.device

    @cached_property
    def causal(self) -> bool:
        """Whether a position sees only what stands before it. Tried: another last token leaves the other coefficients alone."""
        inputs = random_inputs(self.model, batch=1, length=min(8, self.positions or 8))
        if "input_ids" not in inputs:  # an image has no before
            return False
        ids = inputs["input_ids"]
        other = ids.clone()
        other[0, -1] = (ids[0, -1] + 1) % (self.vocab or 1)
        observed = (self.trace({**inputs, "input_ids": given}).coefficients for given in (ids, other))
        return all(_same(one[:, :-1], two[:, :-1]) for one, two in zip(*observed, strict=True))

    @cached_property
    def top(self) -> Top | None:
        """The row's account of what lies between the last output and the logits."""
        return find_top(self.model, self.family)

    def layer(self, index: Any) -> FeedForward:
        """One feed-forward layer; negative indices are refused, since a memory's name has none."""
        if not isinstance(index, int) or not 0 <= index < self.layers:
            raise MemoryNameError(f"There is no layer {index!r}. This model has layers 0 to {self.layers - 1}.")
        return self._layers[index]

    def memory(self, name: str | Memory | tuple[int, int]) -> Memory:
        """A memory by its name, checked against this model."""
        memory = Memory.parse(name) if isinstance(name, str) else Memory(*name)
        count = self.layer(memory.layer).memories
        if not 0 <= memory.memory < count:
            raise MemoryNameError(f"There is no memory {memory}. Layer {memory.layer} has memories 0 to {count - 1}.")
        return memory

    def keys(self, layer: Any) -> Keys:
        """The keys, memory × hidden, as the model holds them; a pair (gate, key) for a gated layer."""
        return self.layer(layer).keys()

    def values(self, layer: Any) -> Float[Tensor, "memory hidden"]:
        """The values: the rows of the output projection, as the model holds them. Copy them before you change one."""
        return self.layer(layer).values()

    def lens(self, name: str = "norm") -> Lens:
        """How vectors are read over the vocabulary; `ffscope.models.lenses` has one module for each lens."""
        if name not in self._lenses:
            self._lenses[name] = make_lens(name, self.model, self.top, self._layers)
        return self._lenses[name]

    def encode(self, text: Source, *, bos: bool = True) -> Inputs:
        """Text, token ids or ready-made inputs as the model takes them, checked."""
        return encode(self.model, self.tokenizer, text, bos=bos, reserved=self._reserved)

    @torch.no_grad()
    def forward(self, inputs: Inputs) -> Any:
        """One pass of the model, with whatever edits and taps are in force in this thread."""
        return run(self.model, inputs)

    def trace(self, text: Source, *, bos: bool = True, layers: Iterable[int] | None = None) -> Trace:
        """Coefficients, residual, update and output of every layer and position, and the logits.

        A text gets the BOS token in front unless `bos=False`; token ids are taken as they are.
        """
        inputs = self.encode(text, bos=bos)
        chosen = tuple(range(self.layers) if layers is None else layers)
        kept = [_Kept(self.layer(index)) for index in chosen]
        with ExitStack() as stack:
            for one in kept:
                stack.enter_context(one.tapping())
            result = self.forward(inputs)
        return Trace(
            inputs=inputs,
            tokens=self._spell(inputs),
            layers=chosen,
            coefficients=[one.coefficients() for one in kept],
            residual=[one.residual() for one in kept],
            update=[one.update() for one in kept],
            output=[one.output() for one in kept],
            logits=None if self.top is None else logits_of(result),
        )

    def states_at(
        self,
        inputs: Inputs,
        rows: Int[Tensor, "n"],
        positions: Int[Tensor, "n"],
        *,
        layers: Iterable[int] | None = None,
    ) -> States:
        """What layers (all, or some) hold at some places of a batch, and nothing of the rest; the pass ends with the last of them.

        Positions below 0 count from the end, which in an encoder–decoder is the end of either stack.
        """
        wanted = self._layers if layers is None else [self.layer(layer) for layer in layers]
        chosen = [_Kept(layer, at=(len(inputs["input_ids"]), rows, positions)) for layer in wanted]
        with ExitStack() as stack, suppress(EnoughSeen):
            for one in chosen:
                stack.enter_context(one.tapping(_all_seen(chosen)))
            self.forward(inputs)
        return States(
            coefficients=[one.coefficients() for one in chosen],
            residual=[one.residual() for one in chosen],
            update=[one.update() for one in chosen],
            output=[one.output() for one in chosen],
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
        """Within the block, and in this thread only, change coefficients: `with model.edit(zero=["L3.17"], scale={"L4.2": 5}): …`

        `L3` names every memory of a layer. Positions (a number or several) count from 0, BOS included, or when negative from
        the end of what is being run; without them the change holds everywhere. Edits nest: an inner one sees what an outer
        one made.
        """
        wanted = wanted_changes(zero, {} if scale is None else scale, {} if set is None else set)
        edit = Edit(((memory, change) for name, change in wanted for memory in self._named(name)), positions)
        with ExitStack() as stack:
            for layer, reader in edit.readers():
                for part in self.layer(layer).parts:
                    stack.enter_context(part.tap(reader))
            yield

    def _named(self, name: Any) -> list[Memory]:
        """One memory, or every memory of a layer."""
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
        spelt = ((row, self.tokenizer.convert_ids_to_tokens(row)) for row in inputs["input_ids"].tolist())
        return [[token or f"#{id}" for id, token in zip(row, tokens, strict=True)] for row, tokens in spelt]


class _Kept:
    """What is kept of one layer: copies, since a model may change a tensor in place after the hook saw it.

    With `at` (the batch's size, rows, positions) only those places are kept, place × width.
    """

    def __init__(self, layer: FeedForward, at: tuple[int, Tensor, Tensor] | None = None) -> None:
        self.layer = layer
        self._at = at
        self._parts: dict[Part, Tensor] = {}
        self._terms: dict[str, Tensor] = {}
        self._sites = {*layer.residual_sites, layer.update_site, layer.output_site}

    @property
    def whole(self) -> bool:
        """Whether all of the layer has been observed."""
        return len(self._parts) == len(self.layer.parts) and len(self._terms) == len(self._sites)

    @contextmanager
    def tapping(self, then: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Observe one pass; call `then` whenever something was observed."""
        with ExitStack() as stack:
            for part in self.layer.parts:
                stack.enter_context(part.tap(self._part_keeper(then)))
            for site in self._sites:
                observe = self._keeper(str(site), then)
                stack.enter_context(tapping(self.layer.module(site), site.side, observe))
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
            return tensor.clone()
        batch, rows, positions = self._at  # some families flatten batch × position inside the block
        return tensor.reshape(batch, -1, tensor.shape[-1])[rows, positions]

    def coefficients(self) -> Tensor:
        if len(self._parts) < len(self.layer.parts):
            raise ProofError(
                "A feed-forward layer's output projection did not run in this pass, so its coefficients were not seen. "
                "Its block computes the layer in another way than its modules say."
            )
        found = [self._parts[part] for part in self.layer.parts]
        return found[0] if len(found) == 1 else torch.cat(found, -1)

    def residual(self) -> Tensor:
        terms = [self._shaped(str(site)) for site in self.layer.residual_sites]
        return terms[0] if len(terms) == 1 else terms[0] + terms[1]

    def update(self) -> Tensor:
        update = self._shaped(str(self.layer.update_site))
        return update if self.layer.scale == 1 else update * self.layer.scale

    def output(self) -> Tensor:
        return self._shaped(str(self.layer.output_site))

    def _shaped(self, name: str) -> Tensor:
        """A term with the coefficients' leading axes."""
        return self._terms[name].reshape(*next(iter(self._parts.values())).shape[:-1], -1)


def _all_seen(kept: list[_Kept]) -> Callable[[], None]:
    """Ends a pass when every layer has been observed."""

    def end() -> None:
        if all(one.whole for one in reversed(kept)):
            raise EnoughSeen

    return end


def _same(one: Tensor, two: Tensor) -> bool:
    """Equal but for rounding: experts are run in groups, whose other members may move the last digits."""
    return bool((one - two).abs().max() <= 8 * torch.finfo(one.dtype).eps * one.abs().max())
