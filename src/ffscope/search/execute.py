"""Runs a model over batches of sentences and observes the coefficients of all memories."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ffscope.ahead import ahead
from ffscope.axes import Array
from ffscope.corpus.batches import Batch
from ffscope.errors import CoefficientError, MemoryNameError, ProofError
from ffscope.models.info import ModelInfo
from ffscope.models.memory_model import MemoryModel, StopPass
from ffscope.models.parts import Part
from ffscope.options.search import Prefixes
from ffscope.search.accumulators import Accumulators, BatchInfo
from ffscope.search.passes import first_token, sentence_ids, sentence_inputs
from ffscope.search.sample import mix
from ffscope.tokens import visible

_AHEAD = 2  # batches that are prepared while another runs


class Group(NamedTuple):
    """Memories of one layer that share an output projection."""

    layer: int
    part: Part
    memories: Tensor  # their numbers in the layer
    within: Any  # their indices among the part's coefficients: a slice if they are contiguous
    columns: slice  # their indices among all searched memories


class PreparedBatch(NamedTuple):
    """A batch whose tensors are ready for the device, in pinned memory if it is a GPU."""

    batch: Batch
    inputs: dict[str, Tensor]
    info: BatchInfo


class Search:
    """Observes memories while batches run. The result is exact, and independent of the order of the batches."""

    def __init__(
        self,
        model: MemoryModel,
        *,
        top: int,
        layers: list[int] | None = None,
        memories: list[int] | None = None,
        prefixes: Prefixes = "best",
        negative: bool = False,
        bos: bool = True,
        seed: int = 0,
        rarity: int = 1,
    ) -> None:
        """One in `rarity` prefixes is picked for the histograms and the samples."""
        self.model, self.rarity, self.seed = model, rarity, seed
        self.bos = first_token(model, bos=bos)
        self.groups = groups_of(model, layers, memories)
        offsets = [0, *accumulate(model.memories)]  # memories of earlier layers
        names = torch.cat([group.memories + offsets[group.layer] for group in self.groups])
        self.accumulators = Accumulators(
            names.to(model.device),
            top=top,
            prefixes=prefixes,
            negative=negative,
            seed=seed,
            dtype=buffered_dtype(model),
        )
        self._running = False
        self._unobserved: set[Part] = set()

    @contextmanager
    def tapping(self) -> Iterator[None]:
        """Within the block, in this thread, `run` observes the memories."""
        with ExitStack() as stack:
            for group in self.groups:
                stack.enter_context(group.part.tap(self._tap(group)))
            yield

    def prepared(
        self, batches: Iterable[Batch], *, on_wait: Callable[[], None] = lambda: None
    ) -> Iterator[PreparedBatch]:
        """Batches that are prepared while others run. `on_wait` is called now and then while none is ready."""
        if self.model.device.type == "cpu":  # where a second thread that computes would take the model's cores
            return map(self.prepare, ahead(batches, _AHEAD, on_wait=on_wait))
        return ahead(map(self.prepare, batches), _AHEAD, on_wait=on_wait)

    def prepare(self, batch: Batch) -> PreparedBatch:
        """What can be done for a batch ahead of its pass, in another thread."""
        inputs = sentence_ids(self.model, batch.tokens, self.bos)
        info = self._batch_info(batch)
        if self.model.device.type == "cuda":
            inputs = {name: tensor.pin_memory() for name, tensor in inputs.items()}
            info = info.moved(Tensor.pin_memory)
        return PreparedBatch(batch, inputs, info)

    def run(self, batch: Batch) -> None:
        """Run one batch through the model, up to the last searched layer."""
        self.run_prepared(self.prepare(batch))

    def run_prepared(self, prepared: PreparedBatch) -> None:
        """The same for a batch that has been prepared."""
        device = self.model.device
        self.accumulators.begin(prepared.info.moved(lambda tensor: tensor.to(device, non_blocking=True)))
        self._running = True
        self._unobserved = {group.part for group in self.groups}
        self._last_sum = torch.zeros((), device=device)
        with suppress(StopPass):
            self.model.forward(self.model.encode(prepared.inputs))
        if self._unobserved:
            raise ProofError(
                "A feed-forward layer's output projection did not run in this pass, so its coefficients were not observed. Blocks "
                "that do not call their modules are not supported."
            )
        self._running = False
        self.accumulators.end()
        if not torch.stack([self._last_sum, self.accumulators.histogram.maximum.max()]).isfinite().all():
            raise CoefficientError(self._non_finite_message(prepared.batch))

    def _tap(self, group: Group) -> Any:
        def observe(part: Part, coefficients: Tensor, _past: int) -> None:
            if not self._running:
                return
            observed_here = coefficients if group.within is None else coefficients[..., group.within]
            observed_here = observed_here.to(self.model.device)  # from a layer on another device
            self.accumulators.observe(observed_here, group.columns)
            if group.layer == self.groups[-1].layer:
                # The maximum misses minus infinity. In an earlier layer it makes all later ones non-finite.
                self._last_sum = self._last_sum + observed_here.sum(dtype=torch.float32)
            self._unobserved.discard(part)
            if not self._unobserved:
                raise StopPass

        return observe

    def _batch_info(self, batch: Batch) -> BatchInfo:
        firsts = torch.from_numpy(batch.first_prefixes)
        length = batch.tokens.shape[1]
        numbers = firsts[:, None] + torch.arange(length)
        # Not the seed of the sample: its hash would then correlate with what is picked here.
        picked = (mix(numbers, self.seed + 1) % self.rarity == 0).nonzero()
        return BatchInfo(firsts, length, picked[:, 0], picked[:, 1], numbers[picked[:, 0], picked[:, 1]])

    def _non_finite_message(self, batch: Batch) -> str:
        """An error message with the first sentence and memory of a batch that have a non-finite coefficient."""
        for row, sentence in enumerate(batch.sentences.tolist()):
            single = Batch(
                batch.sentences[row : row + 1], batch.first_prefixes[row : row + 1], batch.tokens[row : row + 1]
            )
            for group, coefficients in zip(self.groups, self._observed(single), strict=True):
                non_finite = (~coefficients.isfinite()).nonzero()
                if len(non_finite):
                    number = coefficients[tuple(non_finite[0].tolist())].item()
                    memory = int(group.memories[non_finite[0, 2]])
                    text = visible(self.model.tokenizer.decode(batch.tokens[row]))
                    return (
                        f"Memory L{group.layer}.{memory} has the coefficient {number} in sentence {sentence} ({text!r}). "
                        f"Expected a finite number. The model runs in {str(self.model.dtype).removeprefix('torch.')}: try --dtype "
                        "float32, or bfloat16 for its range."
                    )
        return "A coefficient in a batch is not finite, but all are finite when the sentences run one by one. Try --dtype float32."

    def _observed(self, batch: Batch) -> list[Tensor]:
        """The coefficients of every group in one batch."""
        observed: dict[Part, Tensor] = {}

        def keep(part: Part, coefficients: Tensor, _past: int) -> None:
            observed[part] = coefficients.clone()

        with ExitStack() as stack:
            for group in self.groups:
                stack.enter_context(group.part.tap(keep))
            self.model.forward(sentence_inputs(self.model, batch.tokens, self.bos))
        return [observed[g.part] if g.within is None else observed[g.part][..., g.within] for g in self.groups]


def searched_memories(counts: Sequence[int], layers: list[int] | None, memories: list[int] | None) -> dict[int, Array]:
    """The memories to search, by layer: all, or those with these numbers in these layers. `counts` are those of the layers."""
    chosen: dict[int, Array] = {}
    for layer, count in enumerate(counts):
        numbers = np.arange(count, dtype=np.int32)
        numbers = numbers if memories is None else numbers[np.isin(numbers, memories)]
        if len(numbers) and (layers is None or layer in layers):
            chosen[layer] = numbers
    if not chosen:
        raise MemoryNameError(
            "The chosen layers have none of the chosen memories. Choose others with --layers and --memories."
        )
    return chosen


def groups_of(model: MemoryModel, layers: list[int] | None, memories: list[int] | None) -> list[Group]:
    """The searched memories of a model, in groups."""
    groups: list[Group] = []
    columns = 0
    for layer in searched_memories(model.memories, layers, memories):
        for part in model.layer(layer).parts:
            numbers, within = _searched(part, memories)
            if len(numbers):
                groups.append(Group(layer, part, numbers, within, slice(columns, columns + len(numbers))))
                columns += len(numbers)
    return groups


def buffered_dtype(model: MemoryModel | ModelInfo) -> torch.dtype:
    """The dtype in which coefficients are buffered: the model's, if it is a smaller one than float32."""
    return model.dtype if model.dtype.itemsize == 2 else torch.float32


def warm_up(model: MemoryModel) -> None:
    """Compile a GPU's kernels with a short pass, which can be done while the text is being read."""
    if model.device.type == "cuda":
        numbers = np.arange(16)
        execute(Search(model, top=1), [Batch(numbers, 4 * numbers, np.zeros((16, 4), dtype=np.int32))])


def execute(search: Search, batches: Iterable[Batch]) -> dict[str, Tensor]:
    """The state after searching some batches, such as those of a shard; `merge` combines states."""
    with search.tapping():
        for batch in search.prepared(batches):
            search.run_prepared(batch)
    return search.accumulators.state()


def _searched(part: Part, memories: list[int] | None) -> tuple[Tensor, Any]:
    """The numbers of a part's searched memories in their layer, and their indices among its coefficients."""
    all_memories = torch.arange(part.offset, part.offset + part.memories)
    if memories is None:
        return all_memories, None
    numbers = all_memories[torch.isin(all_memories, torch.tensor(sorted(memories)))]
    within = numbers - part.offset
    contiguous = len(within) > 0 and int(within[-1] - within[0]) == len(within) - 1
    return numbers, slice(int(within[0]), int(within[-1]) + 1) if contiguous else within
