"""Runs the search in this process, batch by batch."""

import logging
import time
from collections.abc import Callable, Iterator

from ffscope.ahead import ahead
from ffscope.corpus.batches import Batch
from ffscope.corpus.reading import Reading
from ffscope.models.memory_model import MemoryModel
from ffscope.progress import Progress, ProgressCallback
from ffscope.search import checkpoint
from ffscope.search.engines import SearchResult
from ffscope.search.execute import PreparedBatch
from ffscope.search.interrupts import delayed_interrupt
from ffscope.search.plan import Plan, check_prefixes, shards

logger = logging.getLogger(__name__)


_AHEAD = 2  # batches that are prepared while another runs


def run(
    reading: Reading, model: MemoryModel, plan: Plan, *, checkpoint_every: float, progress: ProgressCallback
) -> SearchResult:
    """Search the remaining batches; write a checkpoint at intervals and when interrupted."""
    job = _Run(reading, model, plan)
    if plan.options.minutes is not None:
        job.save()  # so that the speed is measured only once
    job.run_all(checkpoint_every, progress)
    return SearchResult(job.search.accumulators.state(), job.seconds)


class _Run:
    """A search and its progress, new or from the study's checkpoint."""

    def __init__(self, reading: Reading, model: MemoryModel, plan: Plan) -> None:
        self.reading, self.plan = reading, plan
        self.search = plan.search(model)
        self.batches = self.sentences = self.prefixes = 0
        self.seconds = 0.0
        note = checkpoint.read_note(reading.study)
        if note is not None:
            self.search.accumulators.load(checkpoint.load(reading.study))
            self.batches, self.sentences, self.prefixes = note["batches"], note["sentences"], note["prefixes"]
            self.seconds = note["seconds"]
            logger.info("Resuming the search after %d sentences.", self.sentences)

    def run_all(self, checkpoint_every: float, progress: ProgressCallback) -> None:
        start = saved = time.perf_counter()
        earlier_seconds, earlier_prefixes = self.seconds, self.prefixes
        with self.search.tapping(), delayed_interrupt() as interrupted:
            for prepared in self._prepared_batches(self._on_wait(interrupted)):
                self.search.run_prepared(prepared)
                self._count(prepared.batch)
                now = time.perf_counter()
                self.seconds = earlier_seconds + now - start
                self._report((self.prefixes - earlier_prefixes) / (now - start), progress)
                if interrupted() or now - saved > checkpoint_every:
                    self.save()
                    saved = time.perf_counter()
                if interrupted():
                    logger.warning("Stopped after %d sentences. Run the same command to resume.", self.sentences)
                    break

    def _prepared_batches(self, on_wait: Callable[[], None]) -> Iterator[PreparedBatch]:
        prepare, batches = self.search.prepare, self._remaining_batches()
        if self.search.model.device.type == "cpu":  # where a second thread that computes would take the model's cores
            return map(prepare, ahead(batches, _AHEAD, on_wait=on_wait))
        return ahead(map(prepare, batches), _AHEAD, on_wait=on_wait)

    def _remaining_batches(self) -> Iterator[Batch]:
        done = self.batches
        for shard in shards(self.plan, self.reading):
            yield from shard.batches[max(0, done - shard.first) :]

    def _on_wait(self, interrupted: Callable[[], bool]) -> Callable[[], None]:
        """Called while the search waits for text."""

        def wait() -> None:
            self.reading.report()
            if interrupted():
                self.save()
                raise KeyboardInterrupt

        return wait

    def _count(self, batch: Batch) -> None:
        self.batches += 1
        self.sentences += len(batch.sentences)
        self.prefixes += batch.tokens.size
        check_prefixes(self.prefixes)

    def _report(self, rate: float, progress: ProgressCallback) -> None:
        """Report the progress of the search, and that of the reading beside it."""
        self.reading.report()
        total = self.plan.total or self.reading.searched
        left = None if total is None else (total["prefixes"] - self.prefixes) / rate
        sentences = None if total is None else total["sentences"]
        progress(Progress("searching", self.sentences, sentences, rate=rate, left=left))

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
        checkpoint.save(self.reading.study, self.search.accumulators.state(), note)
