"""The engine that runs a model on the workers of a Ray cluster."""

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from ffscope.corpus.readers import Splitter
from ffscope.corpus.reading import Reading
from ffscope.corpus.sentences import SentenceSplitter
from ffscope.engines.base import Engine, Function, SearchResult, missing_model
from ffscope.engines.ray.pool import Pool, Task
from ffscope.engines.ray.readers import splitting_on
from ffscope.engines.ray.search import ClusterSearch, MergeStates, Note, SearchShard
from ffscope.engines.ray.worker import Mapped
from ffscope.models.info import ModelInfo
from ffscope.models.loading import load
from ffscope.models.memory_model import MemoryModel
from ffscope.progress import ProgressCallback
from ffscope.search import checkpoint
from ffscope.search.plan import Plan
from ffscope.study.folder import Study

logger = logging.getLogger(__name__)

_POLL = 0.2  # seconds


class RayEngine(Engine):
    """A model on the workers of a cluster, or none."""

    name = "ray"

    def __init__(self, pool: Pool, source: str | None) -> None:
        self._pool, self._source, self._options = pool, source, pool.cluster.options

    @property
    def waits_for_text(self) -> bool:
        """GPUs would be idle, so their search begins at once, as if the text were long."""
        return self.info.device.type == "cpu"

    @property
    def device(self) -> str:
        return "cpu"  # the GPUs are for the workers

    @property
    def has_model(self) -> bool:
        return self._source is not None

    @cached_property
    def info(self) -> ModelInfo:
        """The description of the model, from the first worker."""
        info = self._pool.info
        if info is None:
            raise missing_model()
        return info

    @cached_property
    def model(self) -> MemoryModel:
        """The model, loaded in this process for a stage that does not run in shards."""
        if self._source is None:
            raise missing_model()
        logger.info("Loading the model in this process too, for a stage that does not run in shards.")
        return load(self._source, **self._pool.cluster.load_options.arguments)

    def map(
        self, name: str, function: Function, inputs: Iterable[tuple[int, Any]], *, model: bool = True
    ) -> Iterator[tuple[int, Any]]:
        """The results, as the workers finish them."""
        remaining, more = iter(inputs), True
        with self._pool.sending(Mapped(function, model=model)) as job:
            while more or self._pool.outstanding:
                while more and self._pool.has_room:
                    number, value = next(remaining, (None, None))
                    more = number is not None
                    if number is not None:
                        self._pool.submit(Task(name, number, job, value))
                yield from ((task.number, result) for task, result in self._pool.step(_POLL))

    def search(
        self, reading: Reading, plan: Plan, *, checkpoint_every: float, progress: ProgressCallback
    ) -> SearchResult | None:
        """Search the shards that are not finished."""
        note = Note.of(reading.study) or Note.new(reading.study, plan, self._options.storage)
        with (
            self._pool.sending(SearchShard(note.storage, plan)) as search_job,
            self._pool.sending(MergeStates(note.storage)) as merge_job,
        ):
            search = ClusterSearch(self._pool, reading, plan, note, search_job, merge_job, progress)
            result = search.run(checkpoint_every)
        if result is None:
            self._pool.wait_until_idle()  # since a task that still runs would write to the storage
            note.discard()
        return result

    def search_note(self, study: Study) -> dict[str, Any] | None:
        """The note of the search whose shards lie on storage."""
        checkpoint.refuse_other(study, checkpoint.NAME, "local")
        note = Note.of(study)
        return None if note is None else {"file": checkpoint.SHARDS, **note.content}

    def discard_search(self, study: Study) -> None:
        """Delete the search's files."""
        note = Note.of(study)
        if note is not None:
            note.discard()

    def prefixes_per_second(self, function: Function, trial: Any) -> float:
        """The rate of one worker in a trial, times their number."""
        return super().prefixes_per_second(function, trial) * self._pool.cluster.workers

    @contextmanager
    def splitting(self, splitter: SentenceSplitter, readers: int) -> Iterator[Splitter]:
        """Split on the cluster's free cores, or in processes of this machine if the cluster is this machine alone."""
        cluster = self._pool.cluster
        if cluster.own or cluster.free_cores < 1:
            with super().splitting(splitter, readers) as split:
                yield split
        else:
            yield splitting_on(cluster.free_cores, splitter)

    def detail(self) -> str:
        return self._pool.detail
