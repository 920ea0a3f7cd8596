"""Which tokens a key depends on: the coefficient of a trigger without its first, last or a random token."""

from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.corpus.prefixes import tokens_of
from ffscope.models.memory_model import MemoryModel, StopPass
from ffscope.models.parts import Part
from ffscope.search.passes import bos_of, by_length, sentence_inputs
from ffscope.search.prefix_sharing import SharedRuns, share_prefixes
from ffscope.search.sample import mix
from ffscope.stages.mutation import MutationOptions
from ffscope.stages.shards import Shards
from ffscope.stages.stage import Work
from ffscope.study.folder import Study

REMOVED = ("first", "last", "random")
_DRAWN_AT_ONCE = 2**12  # prefixes
_PART = 2**13  # minimum number of tokens per part


class Batch(NamedTuple):
    """Texts of one length, and for each mutation that they cover its row and position in them, its layer and its memory."""

    tokens: Array
    rows: Array
    positions: Array
    layers: Array
    memories: Array


class Group(NamedTuple):
    """Batches that are computed together, and the columns of their mutations that are known before."""

    batches: list[Batch]
    columns: dict[str, Array]


def shards(work: Work) -> Shards:
    """One shard per group of runs."""
    options, model = work.options(MutationOptions), work.info
    triggers = _sampled(work.study, options.mutation_memories, options.mutation_triggers)
    mutations = _Mutations.of(work.study, triggers)
    shared = share_prefixes(mutations.texts, causal=model.causal)
    bos = bos_of(work.study, model)
    runs = _Runs(mutations, shared, work.study.settings["batch_tokens"])
    before = int(bos is not None)
    return Shards(
        count=len(runs.groups),
        input=runs.group,
        rows=partial(mutated_columns, bos=bos),
        sort_by=("layer", "memory", "rank", "removed"),
        sizes=runs.sizes,
        unit="tokens",
        entries={
            "forward_tokens": sum(len(run) + before for run in shared.runs),
            "plain_tokens": sum(len(text) + before for text in mutations.texts),
        },
    )


def _sampled(study: Study, memories: int, triggers: int) -> dict[str, Array]:
    """The triggers, longer than one token, of a random sample of memories of every layer that have triggers."""
    table = pq.read_table(study.path("triggers.parquet"), filters=[("rank", "<=", triggers)])
    columns = {name: table[name].to_numpy() for name in table.column_names if name != "next_token"}
    wanted = np.zeros(len(table), dtype=bool)
    for layer in np.unique(columns["layer"]):
        here = columns["layer"] == layer
        alive = np.unique(columns["memory"][here])
        generator = np.random.default_rng([study.settings["seed"], *b"mutation", int(layer)])
        chosen = generator.permutation(alive)[:memories]
        wanted |= here & np.isin(columns["memory"], chosen)
    wanted &= columns["position"] > 0  # a one-token prefix has no mutation
    return {name: column[wanted] for name, column in columns.items()}


class _Mutations(NamedTuple):
    """Every combination of a trigger and a removal: the trigger's row, the removed token, and the remaining text."""

    triggers: dict[str, Array]
    trigger: Array
    removed: Array
    removed_index: Array
    texts: list[Array]

    @classmethod
    def of(cls, study: Study, triggers: dict[str, Array]) -> "_Mutations":
        sentences = tokens_of(study.path("sentences.parquet"), triggers["sentence"])
        index = np.stack([_indices(triggers, name, study.settings["seed"]) for name in REMOVED], axis=1)
        places = zip(triggers["sentence"].tolist(), triggers["position"].tolist(), index, strict=True)
        texts = [
            np.delete(sentences[sentence][: position + 1], removed)
            for sentence, position, three in places
            for removed in three
        ]
        rows = np.repeat(np.arange(len(index)), len(REMOVED))
        return cls(triggers, rows, np.tile(np.arange(len(REMOVED)), len(index)), index.flatten(), texts)


def _indices(triggers: dict[str, Array], removed: str, seed: int) -> Array:
    position = triggers["position"].astype(np.int64)
    if removed == "first":
        return np.zeros_like(position)
    return position if removed == "last" else _random(triggers["sentence"], position, seed)


def _random(sentences: Array, positions: Array, seed: int) -> Array:
    """The index of a random token of each prefix: the one with the lowest hash.

    The choice is uniform, and the prefixes of a sentence mostly lose the same token, so that they can share runs.
    """
    tokens = torch.arange(int(positions.max(initial=0)) + 1)
    drawn = []
    for numbers, ends in zip(
        torch.from_numpy(sentences).split(_DRAWN_AT_ONCE),
        torch.from_numpy(positions).split(_DRAWN_AT_ONCE),
        strict=True,
    ):
        hashes = mix(mix(numbers.long(), seed)[:, None] + tokens, seed + 1)
        drawn.append(hashes.masked_fill_(tokens > ends[:, None], 2**31).argmin(1))
    return torch.cat(drawn).numpy()


class _Runs:
    """The runs of the model, in groups that are written as one part each."""

    def __init__(self, mutations: _Mutations, shared: SharedRuns, batch_tokens: int) -> None:
        self.mutations, self.shared = mutations, shared
        lengths = np.array([len(run) for run in shared.runs], dtype=np.int64)
        self.groups = _grouped(by_length(lengths, tokens=batch_tokens, rows=batch_tokens), lengths)
        self.sizes = [int(sum(lengths[batch].sum() for batch in group)) for group in self.groups]
        # Sorted by run, so that the mutations of a run are contiguous.
        self.order = np.argsort(shared.run, kind="stable")
        self.starts = np.searchsorted(shared.run[self.order], np.arange(len(shared.runs) + 1))

    def group(self, number: int) -> Group:
        """What a group needs to be run."""
        covered = [self._mutations_of(batch) for batch in self.groups[number]]
        batches = [self._batch(batch, numbers) for batch, numbers in zip(self.groups[number], covered, strict=True)]
        return Group(batches, self._columns(np.concatenate(covered)))

    def _mutations_of(self, batch: Array) -> Array:
        """The mutations that a batch of runs covers."""
        return np.concatenate([self.order[self.starts[run] : self.starts[run + 1]] for run in batch])

    def _batch(self, batch: Array, numbers: Array) -> Batch:
        tokens = np.stack([self.shared.runs[run] for run in batch])
        place = {int(run): row for row, run in enumerate(batch)}
        rows = np.array([place[run] for run in self.shared.run[numbers].tolist()])
        # Counted from the end: both stacks of an encoder–decoder end with the sentence.
        positions = self.shared.position[numbers] - tokens.shape[1]
        trigger = self.mutations.trigger[numbers]
        layers, memories = (self.mutations.triggers[name][trigger] for name in ("layer", "memory"))
        return Batch(tokens, rows, positions, layers, memories)

    def _columns(self, numbers: Array) -> dict[str, Array]:
        mutations = self.mutations
        return {
            **{
                name: mutations.triggers[name][mutations.trigger[numbers]]
                for name in ("layer", "memory", "rank", "coefficient")
            },
            "removed": np.array(REMOVED)[mutations.removed[numbers]],
            "removed_index": mutations.removed_index[numbers].astype(np.int32),
        }


def mutated_columns(model: MemoryModel, group: Group, *, bos: int | None) -> dict[str, Any]:
    """The rows of a group: run its texts, and read the coefficients at their new last tokens."""
    mutated = np.concatenate([_run(model, batch, bos) for batch in group.batches])
    before = group.columns["coefficient"]
    return {**group.columns, "mutated": mutated, "change": (mutated - before) / before}


def _run(model: MemoryModel, batch: Batch, bos: int | None) -> Array:
    """The coefficients of mutations, observed in one pass."""
    rows, positions, layers, memories = (torch.from_numpy(array) for array in batch[1:])
    observed = torch.full((len(rows),), torch.nan)
    waiting = {part: layer for layer in layers.unique().tolist() for part in model.layer(layer).parts}

    def observe(part: Part, coefficients: Tensor, _past: int) -> None:
        layer = waiting.pop(part)
        within = memories - part.offset
        in_part = ((layers == layer) & (within >= 0) & (within < part.memories)).nonzero()[:, 0]
        at = (index[in_part].to(coefficients.device) for index in (rows, positions, within))
        observed[in_part] = coefficients[tuple(at)].float().cpu()
        if not waiting:
            raise StopPass

    with ExitStack() as stack, suppress(StopPass):
        for part in list(waiting):
            stack.enter_context(part.tap(observe))
        model.forward(sentence_inputs(model, batch.tokens, bos))
    return observed.numpy()


def _grouped(batches: list[Array], lengths: Array) -> list[list[Array]]:
    """Consecutive batches in groups of at least _PART tokens."""
    groups: list[list[Array]] = []
    tokens = _PART
    for batch in batches:
        if tokens >= _PART:
            groups.append([])
            tokens = 0
        groups[-1].append(batch)
        tokens += int(lengths[batch].sum())
    return groups
