"""One pass of a model over batches of sentences, with every memory observed."""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ffscope.corpus.batches import Batch
from ffscope.errors import CoefficientError, MemoryNameError, ProofError
from ffscope.models.memory_model import MemoryModel, StopPass
from ffscope.models.parts import Part
from ffscope.options.search import Prefixes
from ffscope.search.accumulators import Accumulators, BatchInfo
from ffscope.search.passes import first_token, sentence_inputs
from ffscope.search.sample import mix
from ffscope.tokens import visible


class Group(NamedTuple):
    """Memories of one layer that share an output projection."""

    layer: int
    part: Part
    memories: Tensor  # their numbers in the layer
    within: Any  # their place among the part's coefficients: a slice where they lie together
    columns: slice  # their place among all memories that are searched


class Search:
    """Listens to memories while batches run. What it keeps is exact, and the same whatever order the batches come in."""

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
        befores = [0, *accumulate(model.memories)]  # memories of earlier layers
        names = torch.cat([group.memories + befores[group.layer] for group in self.groups])
        self.accumulators = Accumulators(
            names.to(model.device), top=top, prefixes=prefixes, negative=negative, seed=seed
        )
        self._running = False
        self._unseen: set[Part] = set()

    @contextmanager
    def tapping(self) -> Iterator[None]:
        """Within the block, and in this thread, `run` observes the memories."""
        with ExitStack() as stack:
            for group in self.groups:
                stack.enter_context(group.part.tap(self._tap(group)))
            yield

    def run(self, batch: Batch) -> None:
        """One batch through the model, up to the last coefficients that are wanted."""
        self.accumulators.begin(self._passing(batch))
        self._running = True
        self._unseen = {group.part for group in self.groups}
        self._last_sum = torch.zeros((), device=self.model.device)
        with suppress(StopPass):
            self.model.forward(sentence_inputs(self.model, batch.tokens, self.bos))
        if self._unseen:
            raise ProofError(
                "A feed-forward layer's output projection did not run in this pass, so its coefficients were not seen. "
                "Its block computes the layer in another way than its modules say."
            )
        self._running = False
        self.accumulators.end()
        if not torch.stack([self._last_sum, self.accumulators.histogram.maximum.max()]).isfinite().all():
            raise CoefficientError(self._culprit(batch))

    def _tap(self, group: Group) -> Any:
        def observe(part: Part, coefficients: Tensor, _past: int) -> None:
            if not self._running:
                return
            mine = coefficients if group.within is None else coefficients[..., group.within]
            self.accumulators.observe(mine, group.columns)
            if group.layer == self.groups[-1].layer:
                # Minus infinity is nobody's highest. In an earlier layer it spoils all that comes after.
                self._last_sum = self._last_sum + mine.sum(dtype=torch.float32)
            self._unseen.discard(part)
            if not self._unseen:
                raise StopPass

        return observe

    def _passing(self, batch: Batch) -> BatchInfo:
        firsts = torch.from_numpy(batch.first_prefixes).to(self.model.device)
        length = batch.tokens.shape[1]
        numbers = firsts[:, None] + torch.arange(length, device=firsts.device)
        # The seed after the sample's, whose own mixing would otherwise favour what was picked.
        picked = (mix(numbers, self.seed + 1) % self.rarity == 0).nonzero()
        return BatchInfo(firsts, length, picked[:, 0], picked[:, 1], numbers[picked[:, 0], picked[:, 1]])

    def _culprit(self, batch: Batch) -> str:
        """Which sentence of a batch has coefficients that are not numbers, and where."""
        for row, sentence in enumerate(batch.sentences.tolist()):
            alone = Batch(
                batch.sentences[row : row + 1], batch.first_prefixes[row : row + 1], batch.tokens[row : row + 1]
            )
            for group, coefficients in zip(self.groups, self._observed(alone), strict=True):
                wrong = (~coefficients.isfinite()).nonzero()
                if len(wrong):
                    number = coefficients[tuple(wrong[0].tolist())].item()
                    memory = int(group.memories[wrong[0, 2]])
                    text = visible(self.model.tokenizer.decode(batch.tokens[row]))
                    return (
                        f"Sentence {sentence} ({text!r}) gives memory L{group.layer}.{memory} the coefficient {number}, so nothing "
                        "can be ranked. Expected finite numbers. This was run in "
                        f"{str(self.model.dtype).removeprefix('torch.')}: try --dtype float32, or bfloat16 for its range."
                    )
        return "A coefficient is not finite in a batch, though in none of its sentences alone. Try --dtype float32."

    def _observed(self, batch: Batch) -> list[Tensor]:
        """Every group's coefficients in one batch, with nothing else done with them."""
        observed: dict[Part, Tensor] = {}

        def keep(part: Part, coefficients: Tensor, _past: int) -> None:
            observed[part] = coefficients.clone()

        with ExitStack() as stack:
            for group in self.groups:
                stack.enter_context(group.part.tap(keep))
            self.model.forward(sentence_inputs(self.model, batch.tokens, self.bos))
        return [observed[g.part] if g.within is None else observed[g.part][..., g.within] for g in self.groups]


def groups_of(model: MemoryModel, layers: list[int] | None, memories: list[int] | None) -> list[Group]:
    """The memories of a model that are searched: all, or those with some numbers in some layers."""
    groups: list[Group] = []
    columns = 0
    for layer in range(model.layers):
        for part in model.layer(layer).parts if layers is None or layer in layers else ():
            numbers, within = _chosen(part, memories)
            if len(numbers):
                groups.append(Group(layer, part, numbers, within, slice(columns, columns + len(numbers))))
                columns += len(numbers)
    if not groups:
        raise MemoryNameError(
            "None of these layers has any of these memories. Choose others with --layers and --memories."
        )
    return groups


def execute(search: Search, batches: Iterable[Batch]) -> dict[str, Tensor]:
    """What a search keeps of some batches, such as those of a shard; `merge` makes one state of several."""
    with search.tapping():
        for batch in batches:
            search.run(batch)
    return search.accumulators.state()


def _chosen(part: Part, memories: list[int] | None) -> tuple[Tensor, Any]:
    """The numbers, in their layer, of a part's wanted memories, and their place among its coefficients."""
    everyone = torch.arange(part.offset, part.offset + part.memories)
    if memories is None:
        return everyone, None
    numbers = everyone[torch.isin(everyone, torch.tensor(sorted(memories)))]
    within = numbers - part.offset
    together = len(within) > 0 and int(within[-1] - within[0]) == len(within) - 1
    return numbers, slice(int(within[0]), int(within[-1]) + 1) if together else within
