"""Runs the model in this process: shards one by one, the search batch by batch."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import Any

from ffscope.corpus.batches import Batch
from ffscope.corpus.reading import Reading
from ffscope.engines.base import Engine, Function, SearchResult, missing_model
from ffscope.models.info import ModelInfo, describe
from ffscope.models.memory_model import MemoryModel
from ffscope.options.engine import EngineOptions
from ffscope.options.model import LoadOptions
from ffscope.progress import Progress, ProgressCallback
from ffscope.search import checkpoint
from ffscope.search.execute import warm_up
from ffscope.search.interrupts import delayed_interrupt
from ffscope.search.plan import Plan, batches_of, check_prefixes
from ffscope.study.folder import Study

logger = logging.getLogger(__name__)


@contextmanager
def start(source: str | None, load: LoadOptions, _options: EngineOptions) -> Iterator[Engine]:
    """Load the model in this process."""
    from ffscope.models.loading import load as load_model

    yield LocalEngine(None if source is None else load_model(source, **load.arguments))


class LocalEngine(Engine):
    """A model in this process, or none."""

    name = "local"

    def __init__(self, model: MemoryModel | None = None) -> None:
        self._model = model

    @property
    def waits_for_text(self) -> bool:
        """A GPU would be idle, so its search begins at once, as if the text were long."""
        return self.model.device.type == "cpu"

    @property
    def device(self) -> str | None:
        return None if self._model is None else str(self._model.device)

    @property
    def has_model(self) -> bool:
        return self._model is not None

    @property
    def model(self) -> MemoryModel:
        """The model."""
        if self._model is None:
            raise missing_model()
        return self._model

    @cached_property
    def info(self) -> ModelInfo:
        """The description of the model."""
        return describe(self.model)

    def map(
        self, name: str, function: Function, inputs: Iterable[tuple[int, Any]], *, model: bool = True
    ) -> Iterator[tuple[int, Any]]:
        """The results, one by one, in the order of the inputs."""
        here = self.model if model else None
        return ((number, function(here, value)) for number, value in inputs)

    def warm_up(self) -> None:
        warm_up(self.model)

    def search(
        self, reading: Reading, plan: Plan, *, checkpoint_every: float, progress: ProgressCallback
    ) -> SearchResult | None:
        """Search the remaining batches; write a checkpoint at intervals and when interrupted."""
        job = _Run(reading, self.model, plan)
        if plan.options.minutes is not None:
            job.save()  # so that the speed is measured only once
        job.run_all(checkpoint_every, progress)
        if plan.assumes_too_much(reading):
            return None
        return SearchResult(job.search.accumulators.state(), job.seconds)

    def search_note(self, study: Study) -> dict[str, Any] | None:
        """The note of the study's checkpoint."""
        checkpoint.refuse_other(study, checkpoint.SHARDS, "ray")
        return checkpoint.read_note(study)

    def discard_search(self, study: Study) -> None:
        """Delete the checkpoint."""
        checkpoint.discard(study)


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
            remaining = islice(batches_of(self.plan, self.reading), self.batches, None)
            for prepared in self.search.prepared(remaining, on_wait=self._on_wait(interrupted)):
                if self.plan.assumes_too_much(self.reading):
                    return
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
        """Write a checkpoint, unless the plan may still change: then little is lost."""
        if not self.plan.is_certain(self.reading):
            return
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
