"""What a key looks at: the coefficient of a trigger without its first, its last or a random token."""

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
from ffscope.search.prefix_sharing import Shared, share
from ffscope.search.sample import mix
from ffscope.stages.mutation import MutationOptions
from ffscope.stages.stage import Work
from ffscope.study.folder import Study
from ffscope.study.resumable_table import ResumableTable

REMOVED = ("first", "last", "random")
_LOTS = 2**12  # prefixes whose lots are drawn at once
_PART = 2**13  # tokens that are run between two parts put by, at least


def mutate(
    study: Study,
    model: MemoryModel,
    *,
    memories: int = 100,
    triggers: int = 50,
    progress: ProgressCallback = no_progress,
) -> None:
    """Remove a token from triggers of some memories of every layer and read the coefficients again: mutation.parquet."""
    study.need("triggers")
    settings = {"mutation_memories": memories, "mutation_triggers": triggers}
    if study.done("mutation", settings):
        return
    start = time.perf_counter()
    mutations = _Mutations.of(study, _sampled(study, memories, triggers))
    shared = share(mutations.texts, causal=model.causal)
    stage = _Stage(study, model, mutations, shared)
    parts = ResumableTable(study, "mutation.parquet", settings)
    tokens = stage.run_all(parts, progress)
    parts.join(len(stage.groups), sort_by=["layer", "memory", "rank", "removed"])
    before = int(stage.bos is not None)
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
    """The triggers of some memories of every layer, drawn among those that have any; longer than one token."""
    table = pq.read_table(study.path("triggers.parquet"), filters=[("rank", "<=", triggers)])
    columns = {name: table[name].to_numpy() for name in table.column_names if name != "next_token"}
    wanted = np.zeros(len(table), dtype=bool)
    for layer in np.unique(columns["layer"]):
        here = columns["layer"] == layer
        alive = np.unique(columns["memory"][here])
        generator = np.random.default_rng([study.settings["seed"], *b"mutation", int(layer)])
        some = generator.permutation(alive)[:memories]
        wanted |= here & np.isin(columns["memory"], some)
    wanted &= columns["position"] > 0  # a one-token prefix has no mutation
    return {name: column[wanted] for name, column in columns.items()}


class _Mutations(NamedTuple):
    """Every trigger times every removal: the trigger's row, what is removed, and the text that is left."""

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
    """A random token of each prefix: of its tokens the one with the lowest lot.

    Each is as likely as any other, and the prefixes of a sentence mostly lose the same token, so that they share their runs.
    """
    tokens = torch.arange(int(positions.max(initial=0)) + 1)
    drawn = []
    for some, ends in zip(
        torch.from_numpy(sentences).split(_LOTS), torch.from_numpy(positions).split(_LOTS), strict=True
    ):
        lots = mix(mix(some.long(), seed)[:, None] + tokens, seed + 1)
        drawn.append(lots.masked_fill_(tokens > ends[:, None], 2**31).argmin(1))
    return torch.cat(drawn).numpy()


class _Stage:
    """The runs of a stage, in groups that are put by as one part each."""

    def __init__(self, study: Study, model: MemoryModel, mutations: _Mutations, shared: Shared) -> None:
        self.model, self.mutations, self.shared = model, mutations, shared
        self.bos = bos_of(study, model)
        lengths = np.array([len(run) for run in shared.runs], dtype=np.int64)
        room = study.settings["batch_tokens"]
        self.groups = _grouped(by_length(lengths, tokens=room, rows=room), lengths)
        # Readings in the order of their runs, so that those of a run lie together.
        self.order = np.argsort(shared.run, kind="stable")
        self.starts = np.searchsorted(shared.run[self.order], np.arange(len(shared.runs) + 1))

    def run_all(self, parts: ResumableTable, progress: ProgressCallback) -> int:
        """Run every group that is left; gives the number of tokens run."""
        tokens = 0
        total = sum(len(run) for run in self.shared.runs)
        sizes = [sum(len(self.shared.runs[run]) for batch in group for run in batch) for group in self.groups]
        missing = parts.missing(len(self.groups))
        done = total - sum(sizes[number] for number in missing)
        for number in missing:
            progress(Progress("mutation", done, total, unit="tokens"))
            readings = [self._readings(batch) for batch in self.groups[number]]
            mutated = [self._run(batch, some) for batch, some in zip(self.groups[number], readings, strict=True)]
            parts.keep(number, self._columns(np.concatenate(readings), torch.cat(mutated).numpy()))
            tokens, done = tokens + sizes[number], done + sizes[number]
        progress(Progress("mutation", total, total, unit="tokens"))
        return tokens

    def _readings(self, batch: Array) -> Array:
        """The mutations that a batch of runs answers for."""
        return np.concatenate([self.order[self.starts[run] : self.starts[run + 1]] for run in batch])

    def _run(self, batch: Array, readings: Array) -> Tensor:
        """The coefficients that were asked for, observed in one pass."""
        tokens = np.stack([self.shared.runs[run] for run in batch])
        place = {int(run): row for row, run in enumerate(batch)}
        rows = torch.tensor([place[run] for run in self.shared.run[readings].tolist()])
        # From the end, where both stacks of an encoder–decoder hold the sentence.
        positions = torch.from_numpy(self.shared.position[readings] - tokens.shape[1])
        trigger = self.mutations.trigger[readings]
        layers, memories = (torch.from_numpy(self.mutations.triggers[name][trigger]) for name in ("layer", "memory"))
        observed = torch.full((len(readings),), torch.nan)
        waiting = {part: layer for layer in layers.unique().tolist() for part in self.model.layer(layer).parts}

        def observe(part: Part, coefficients: Tensor, _past: int) -> None:
            layer = waiting.pop(part)
            within = memories - part.offset
            mine = ((layers == layer) & (within >= 0) & (within < part.memories)).nonzero()[:, 0]
            at = (some[mine].to(coefficients.device) for some in (rows, positions, within))
            observed[mine] = coefficients[tuple(at)].float().cpu()
            if not waiting:
                raise StopPass

        with ExitStack() as stack, suppress(StopPass):
            for part in list(waiting):
                stack.enter_context(part.tap(observe))
            self.model.forward(sentence_inputs(self.model, tokens, self.bos))
        return observed

    def _columns(self, readings: Array, mutated: Array) -> dict[str, Any]:
        mutations = self.mutations
        triggers = {
            name: mutations.triggers[name][mutations.trigger[readings]]
            for name in ("layer", "memory", "rank", "coefficient")
        }
        return {
            **triggers,
            "removed": np.array(REMOVED)[mutations.removed[readings]],
            "removed_index": mutations.removed_index[readings].astype(np.int32),
            "mutated": mutated,
            "change": (mutated - triggers["coefficient"]) / triggers["coefficient"],
        }


def _grouped(batches: list[Array], lengths: Array) -> list[list[Array]]:
    """Batches after one another in groups of enough tokens to be worth a file."""
    groups: list[list[Array]] = []
    held = _PART
    for batch in batches:
        if held >= _PART:
            groups.append([])
            held = 0
        groups[-1].append(batch)
        held += int(lengths[batch].sum())
    return groups


def run(work: Work) -> None:
    """The stage."""
    options = work.options(MutationOptions)
    counts = {"memories": options.mutation_memories, "triggers": options.mutation_triggers}
    mutate(work.study, work.model, **counts, progress=work.progress)
