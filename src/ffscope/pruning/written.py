"""Writes a model without its least important memories, loads it again, and compares it with the model they were taken from."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ffscope.effects.baseline import Baselines, read_baselines
from ffscope.effects.groups import Group, without
from ffscope.effects.held_out import HeldOutBatch, held_out_batches, perplexity
from ffscope.errors import MemoryNameError, ProofError, SourceError
from ffscope.memory_name import Memory
from ffscope.models.memory_model import MemoryModel
from ffscope.models.removal import Remover
from ffscope.models.written import error_of_written, largest_error, load_written, refuse_existing, write_model
from ffscope.pruning.ranking import available_scores, check_has_loss, lowest
from ffscope.pruning.scored import rankings_for
from ffscope.pruning.speed import tokens_per_second
from ffscope.search.passes import bos_of
from ffscope.stages.prune import PrunedModelOptions, PruneOptions
from ffscope.stages.stage import Work

RECORD = "ffscope-prune.json"


@dataclass(frozen=True)
class Size:
    """A model as it was measured: `bytes` are those of its weights as written."""

    memories: int
    parameters: int
    bytes: int
    perplexity: float
    tokens_per_second: float


@dataclass(frozen=True)
class Pruned:
    """A pruned model in a folder: what was removed, and what that changed. In the folder it is ffscope-prune.json."""

    source: str
    fingerprint: str  # of the model that it was made from
    score: str
    seed: int  # of the study, which random orders depend on
    share: float
    ranking: str
    replace: str
    zero_rows: bool
    prefixes: int  # at which the perplexities were measured
    error: float  # the largest relative error of the logits, compared with the intact model edited live
    before: Size
    after: Size
    removed: tuple[tuple[int, ...], ...]  # by layer, by their numbers in the source
    memories: tuple[int, ...]  # how many memories the source has in each layer

    @classmethod
    def read(cls, folder: Path | str) -> "Pruned":
        """The record of a pruned model."""
        file = Path(folder) / RECORD
        try:
            record = json.loads(file.read_text(encoding="utf-8"))
            sizes = {name: Size(**record[name]) for name in ("before", "after")}
            removed = tuple(map(tuple, record["removed"]))
            return cls(**{**record, **sizes, "removed": removed, "memories": tuple(record["memories"])})
        except (OSError, ValueError, KeyError, TypeError) as error:  # the last two: of another version
            raise SourceError(
                f"{folder} has no {RECORD} that can be read, so it was not written by this version of `ffscope prune`."
            ) from error

    def original(self, name: str | Memory) -> Memory:
        """The name in the source of a memory of the pruned model."""
        layer, number = Memory.parse(name) if isinstance(name, str) else name
        if not 0 <= layer < len(self.memories):
            raise MemoryNameError(f"There is no layer {layer}. This model has layers 0 to {len(self.memories) - 1}.")
        kept = np.arange(self.memories[layer])
        if not self.zero_rows:
            kept = np.delete(kept, list(self.removed[layer]))
        if not 0 <= number < len(kept):
            raise MemoryNameError(
                f"There is no memory {number} in layer {layer} of the pruned model; it has {len(kept)}."
            )
        return Memory(layer, int(kept[number]))

    def __str__(self) -> str:
        before, after = self.before, self.after
        how = "with values set to 0" if self.zero_rows else "removed"
        lost = sum(map(len, self.removed))
        return (
            f"{lost:,} of {before.memories:,} memories {how}: parameters {before.parameters:,} → {after.parameters:,}, weights "
            f"{before.bytes / 2**20:.1f} → {after.bytes / 2**20:.1f} MiB, held-out perplexity {before.perplexity:.4g} → "
            f"{after.perplexity:.4g} ({self.prefixes:,} prefixes), {before.tokens_per_second:,.0f} → "
            f"{after.tokens_per_second:,.0f} tokens/s, both measured here. Logits equal those of the intact model edited live "
            f"to {self.error:.1g}."
        )


def write_pruned(work: Work, output: PrunedModelOptions) -> Pruned:
    """Write the model that the options describe. Its folder appears when it is complete and has been compared."""
    assert output.out is not None
    assert output.share is not None
    folder = Path(output.out)
    refuse_existing(folder)
    check_has_loss(work.info)
    study, options = work.study, work.options(PruneOptions)
    (score,) = available_scores(study, work.info, [output.score])
    baselines = read_baselines(study, work.info, options.replace, option="--replace")
    batches = held_out_batches(study, work.info, options.prune_prefixes)
    remover = Remover(work.model, zero_rows=output.zero_rows)
    places = rankings_for(work, score).of(score)
    if output.ranking == "model":
        removed = lowest(places, work.info.memories, output.share).members
    else:
        removed = remover.lowest(np.split(places, np.cumsum(work.info.memories)[:-1]), output.share)
    skeleton = remover.remove(removed, baselines.means)
    writer = _Writer(work, remover, Group(score, tuple(removed)), baselines, batches)
    pruned: list[Pruned] = []

    def complete(unfinished: Path) -> None:
        record = writer.compare(unfinished, output, options)
        text = json.dumps(asdict(record), indent=1, ensure_ascii=False)
        (unfinished / RECORD).write_text(f"{text}\n", encoding="utf-8")
        pruned.append(record)

    write_model(skeleton, work.model.tokenizer, folder, complete=complete)
    return pruned[0]


class _Writer:
    """Loads the written model and measures both."""

    def __init__(
        self, work: Work, remover: Remover, group: Group, baselines: Baselines, batches: list[HeldOutBatch]
    ) -> None:
        self.work, self.model, self.remover = work, work.model, remover
        self.group, self.baselines, self.batches = group, baselines, batches

    def compare(self, folder: Path, output: PrunedModelOptions, options: PruneOptions) -> Pruned:
        """The record of the model in a folder; ProofError if it is not the intact model without these memories."""
        written = load_written(folder, self.model)
        error = self._error(written)
        bos = bos_of(self.work.study, self.work.info)
        speeds = tokens_per_second((self.model, written), self.batches, bos)
        before, after = (
            self._size(model, speed, bos) for model, speed in zip((self.model, written), speeds, strict=True)
        )
        entry = self.work.info.entry
        return Pruned(
            source=entry["source"],
            fingerprint=entry["fingerprint"],
            score=output.score,
            seed=self.work.study.settings["seed"],
            share=float(output.share or 0),
            ranking=output.ranking,
            replace=options.replace,
            zero_rows=output.zero_rows,
            prefixes=sum(len(batch.targets) for batch in self.batches),
            error=error,
            before=before,
            after=after,
            removed=tuple(tuple(mask.nonzero()[0].tolist()) for mask in self.group.members),
            memories=self.model.memories,
        )

    def _size(self, model: MemoryModel, speed: float, bos: int | None) -> Size:
        parameters = sum(weight.numel() for weight in model.model.parameters())
        return Size(
            memories=sum(model.memories),
            parameters=parameters,
            bytes=parameters * self.remover.dtype.itemsize,
            perplexity=perplexity(model, self.batches, bos),
            tokens_per_second=round(speed, 1),
        )

    def _error(self, written: MemoryModel) -> float:
        """The largest relative error of the logits on random inputs, compared with the intact model edited live."""
        error = error_of_written(written, self.model, without(self.model, self.group, self.baselines))
        limit = largest_error(self.model.dtype, None if self.baselines.are_zero else self.remover.dtype)
        if not error <= limit:
            raise ProofError(
                f"The written model differs from the model without these memories: expected a relative error of the logits of at "
                f"most {limit:.0e}, found {error:.1e}. Nothing was kept. Use --zero-rows."
            )
        return error
