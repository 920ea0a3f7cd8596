"""Writes tables whose shards an engine computes. Finished shards are kept, so that an interrupted stage resumes."""

import time
from collections.abc import Callable, Sequence

from ffscope.engines.base import Engine
from ffscope.progress import Progress, ProgressCallback
from ffscope.search.example_pass import Examples, Observer, Pass, batches_of
from ffscope.search.passes import bos_of
from ffscope.stages.shards import Shards
from ffscope.stages.stage import Stage, Work
from ffscope.study.resumable_table import ResumableTable


class ShardProgress:
    """Reports the progress over shards of different sizes, and how an engine spreads them."""

    def __init__(
        self,
        name: str,
        sizes: Sequence[int],
        missing: Sequence[int],
        unit: str,
        engine: Engine,
        report: ProgressCallback,
    ) -> None:
        self._name, self._sizes, self._unit, self._engine, self._callback = name, sizes, unit, engine, report
        self._total = sum(sizes)
        self._done = self._total - sum(sizes[number] for number in missing)
        self.report()

    def add(self, number: int) -> None:
        """Count a finished shard."""
        self._done += self._sizes[number]
        self.report()

    def report(self) -> None:
        """Report the progress so far."""
        self._callback(Progress(self._name, self._done, self._total, unit=self._unit, detail=self._engine.detail()))


def write_shards(stage: Stage, make_shards: Callable[[Work], Shards], work: Work) -> None:
    """Compute the shards that are missing, and write the table and its entry in study.json."""
    study, settings, table = work.study, stage.settings(work.options), stage.tables[0]
    start = time.perf_counter()
    shards = make_shards(work)
    sizes = shards.sizes or [1] * shards.count
    parts = ResumableTable(study, table.file, {**settings, **shards.depends}, folder=stage.name)
    missing = parts.missing(shards.count)
    progress = ShardProgress(stage.name, sizes, missing, shards.unit, work.engine, work.progress)
    inputs = ((number, shards.input(number)) for number in missing)
    for number, columns in work.engine.map(stage.name, shards.rows, inputs, model=stage.model != "none"):
        parts.write_part(number, columns)
        progress.add(number)
    parts.join(shards.count, sort_by=list(shards.sort_by) or None)
    tokens = sum(sizes[number] for number in missing) if shards.unit == "tokens" else None
    study.finish(stage.name, settings, seconds=time.perf_counter() - start, tokens=tokens, **shards.entries)
    parts.drop()


def write_observed(work: Work, observers: Sequence[Observer], examples: Examples) -> None:
    """Run the model over the examples once for all observers, and write their tables."""
    study, start = work.study, time.perf_counter()
    batches = batches_of(study, work.info, examples)
    parts = {
        observer.stage: ResumableTable(study, f"{observer.stage}.parquet", observer.settings) for observer in observers
    }
    missing = {stage: set(table.missing(len(batches))) for stage, table in parts.items()}
    waiting = [tuple(stage for stage in parts if number in missing[stage]) for number in range(len(batches))]
    remaining = [number for number, stages in enumerate(waiting) if stages]
    name = " and ".join(stage for stage in parts if stage != "examples") or "examples"
    sizes = [len(batch.examples) for batch in batches]
    progress = ShardProgress(name, sizes, remaining, "examples", work.engine, work.progress)
    run = Pass(list(observers), work.lens, bos_of(study, work.info))
    inputs = ((number, batches[number]._replace(stages=waiting[number])) for number in remaining)
    for number, tables in work.engine.map(name, run, inputs):
        for stage, columns in tables.items():
            parts[stage].write_part(number, columns)
        progress.add(number)
    for observer in observers:
        table = parts[observer.stage]
        table.join(len(batches), sort_by=[name for name in ("example", "layer") if name in table.schema.names])
        entries = observer.close(work)
        study.finish(observer.stage, observer.settings, seconds=time.perf_counter() - start, **entries)
        table.drop()
