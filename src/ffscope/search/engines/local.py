"""Runs the search in this process, batch by batch."""

import logging
import time
from collections.abc import Iterator

from ffscope.corpus.batches import Batch
from ffscope.models.memory_model import MemoryModel
from ffscope.progress import Progress, ProgressCallback
from ffscope.search import checkpoint
from ffscope.search.engines import SearchResult
from ffscope.search.interrupts import delayed_interrupt
from ffscope.search.plan import Plan, shards
from ffscope.study.folder import Study

logger = logging.getLogger(__name__)


def run(
    study: Study, model: MemoryModel, plan: Plan, *, checkpoint_every: float, progress: ProgressCallback
) -> SearchResult:
    """Search the remaining batches; write a checkpoint at intervals and when interrupted."""
    job = _Run(study, model, plan)
    if plan.options.minutes is not None:
        job.save()  # so that the speed is measured only once
    job.run_all(checkpoint_every, progress)
    return SearchResult(job.search.accumulators.state(), job.seconds)


class _Run:
    """A search and its progress, new or from the study's checkpoint."""

    def __init__(self, study: Study, model: MemoryModel, plan: Plan) -> None:
        self.study, self.plan = study, plan
        self.search = plan.search(model)
        self.batches = self.sentences = self.prefixes = 0
        self.seconds = 0.0
        note = checkpoint.read_note(study)
        if note is not None:
            self.search.accumulators.load(checkpoint.load(study))
            self.batches, self.sentences, self.prefixes = note["batches"], note["sentences"], note["prefixes"]
            self.seconds = note["seconds"]
            logger.info("Resuming after %d of %d sentences.", self.sentences, plan.sentences)

    def run_all(self, checkpoint_every: float, progress: ProgressCallback) -> None:
        start = saved = time.perf_counter()
        earlier_seconds, earlier_prefixes = self.seconds, self.prefixes
        with self.search.tapping(), delayed_interrupt() as interrupted:
            for batch in self._remaining_batches():
                self.search.run(batch)
                self.batches += 1
                self.sentences += len(batch.sentences)
                self.prefixes += batch.tokens.size
                now = time.perf_counter()
                self.seconds = earlier_seconds + now - start
                rate = (self.prefixes - earlier_prefixes) / (now - start)
                left = (self.plan.prefixes - self.prefixes) / rate
                progress(Progress("searching", self.sentences, self.plan.sentences, rate=rate, left=left))
                if interrupted() or now - saved > checkpoint_every:
                    self.save()
                    saved = time.perf_counter()
                if interrupted():
                    logger.warning("Stopped after %d sentences. Run the same command to resume.", self.sentences)
                    break

    def _remaining_batches(self) -> Iterator[Batch]:
        done = self.batches
        for shard in shards(self.plan, self.study.path("sentences.parquet")):
            yield from shard.batches[max(0, done - shard.first) :]

    def save(self) -> None:
        """Write a checkpoint."""
        note = {
            "settings": self.plan.settings,
            "total": self.plan.total,
            "corpus": self.plan.corpus,
            "batches": self.batches,
            "sentences": self.sentences,
            "prefixes": self.prefixes,
            "seconds": self.seconds,
        }
        checkpoint.save(self.study, self.search.accumulators.state(), note)
