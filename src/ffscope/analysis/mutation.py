"""Which tokens a key depends on: the coefficient of a trigger without its first, last or a random token."""

import time
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from ffscope.axes import Array
from ffscope.corpus.prefixes import tokens_of
from ffscope.models.memory_model import MemoryModel, StopPass
from ffscope.models.parts import Part
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.search.passes import bos_of, by_length, sentence_inputs
from ffscope.search.prefix_sharing import SharedRuns, share_prefixes
from ffscope.search.sample import mix
from ffscope.stages.mutation import MutationOptions
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.resumable_table import ResumableTable

REMOVED = ("first", "last", "random")
_DRAWN_AT_ONCE = 2**12  # prefixes
_PART = 2**13  # minimum number of tokens per part


def mutate(
    study: Study,
    model: MemoryModel,
    *,
    memories: int = 100,
    triggers: int = 50,
    progress: ProgressCallback = no_progress,
) -> None:
    """Remove a token from triggers of some memories of every layer and measure the coefficients again: mutation.parquet."""
    study.need("triggers")
    settings = {"mutation_memories": memories, "mutation_triggers": triggers}
    if study.done("mutation", settings):
        return
    start = time.perf_counter()
    mutations = _Mutations.of(study, _sampled(study, memories, triggers))
    shared = share_prefixes(mutations.texts, causal=model.causal)
    runs = _Runs(study, model, mutations, shared)
    parts = ResumableTable(study, "mutation.parquet", settings)
    tokens = runs.run_all(parts, progress)
    parts.join(len(runs.groups), sort_by=["layer", "memory", "rank", "removed"])
    before = int(runs.bos is not None)
    study.finish(
        "mutation",
        settings,
        seconds=time.perf_counter() - start,
        tokens=tokens,
        forward_tokens=sum(len(run) + before for run in shared.runs),
        plain_tokens=sum(len(text) + before for text in mutations.texts),
    )
    parts.drop()


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

    def __init__(self, study: Study, model: MemoryModel, mutations: _Mutations, shared: SharedRuns) -> None:
        self.model, self.mutations, self.shared = model, mutations, shared
        self.bos = bos_of(study, model)
        lengths = np.array([len(run) for run in shared.runs], dtype=np.int64)
        room = study.settings["batch_tokens"]
        self.groups = _grouped(by_length(lengths, tokens=room, rows=room), lengths)
        # Sorted by run, so that the mutations of a run are contiguous.
        self.order = np.argsort(shared.run, kind="stable")
        self.starts = np.searchsorted(shared.run[self.order], np.arange(len(shared.runs) + 1))

    def run_all(self, parts: ResumableTable, progress: ProgressCallback) -> int:
        """Run every remaining group; returns the number of tokens run."""
        tokens = 0
        total = sum(len(run) for run in self.shared.runs)
        sizes = [sum(len(self.shared.runs[run]) for batch in group for run in batch) for group in self.groups]
        missing = parts.missing(len(self.groups))
        done = total - sum(sizes[number] for number in missing)
        for number in missing:
            progress(Progress("mutation", done, total, unit="tokens"))
            covered = [self._mutations_of(batch) for batch in self.groups[number]]
            mutated = [self._run(batch, numbers) for batch, numbers in zip(self.groups[number], covered, strict=True)]
            parts.write_part(number, self._columns(np.concatenate(covered), torch.cat(mutated).numpy()))
            tokens, done = tokens + sizes[number], done + sizes[number]
        progress(Progress("mutation", total, total, unit="tokens"))
        return tokens

    def _mutations_of(self, batch: Array) -> Array:
        """The mutations that a batch of runs covers."""
        return np.concatenate([self.order[self.starts[run] : self.starts[run + 1]] for run in batch])

    def _run(self, batch: Array, numbers: Array) -> Tensor:
        """The coefficients of mutations, observed in one pass."""
        tokens = np.stack([self.shared.runs[run] for run in batch])
        place = {int(run): row for row, run in enumerate(batch)}
        rows = torch.tensor([place[run] for run in self.shared.run[numbers].tolist()])
        # Counted from the end: both stacks of an encoder–decoder end with the sentence.
        positions = torch.from_numpy(self.shared.position[numbers] - tokens.shape[1])
        trigger = self.mutations.trigger[numbers]
        layers, memories = (torch.from_numpy(self.mutations.triggers[name][trigger]) for name in ("layer", "memory"))
        observed = torch.full((len(numbers),), torch.nan)
        waiting = {part: layer for layer in layers.unique().tolist() for part in self.model.layer(layer).parts}

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
            self.model.forward(sentence_inputs(self.model, tokens, self.bos))
        return observed

    def _columns(self, numbers: Array, mutated: Array) -> dict[str, Any]:
        mutations = self.mutations
        triggers = {
            name: mutations.triggers[name][mutations.trigger[numbers]]
            for name in ("layer", "memory", "rank", "coefficient")
        }
        return {
            **triggers,
            "removed": np.array(REMOVED)[mutations.removed[numbers]],
            "removed_index": mutations.removed_index[numbers].astype(np.int32),
            "mutated": mutated,
            "change": (mutated - triggers["coefficient"]) / triggers["coefficient"],
        }


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


def run(work: Work) -> None:
    """Run the stage."""
    options = work.options(MutationOptions)
    counts = {"memories": options.mutation_memories, "triggers": options.mutation_triggers}
    mutate(work.study, work.model, **counts, progress=work.progress)
