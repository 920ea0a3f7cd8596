"""Reading a corpus in a thread, while the sentences that have been read are already used."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.corpus.ingest import Ingestion
from ffscope.corpus.readers import Splitting, splitting
from ffscope.errors import CorpusError
from ffscope.options.corpus import CorpusOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.study.folder import Study

_POLL = 0.1  # seconds between progress reports while waiting
_BATCH = 1024  # rows


class Reading:
    """The sentences of a study, of which the last may still be read. Progress is reported in the thread that uses them."""

    def __init__(self, study: Study, progress: ProgressCallback = no_progress) -> None:
        """A study whose text is read."""
        self.study, self.done, self.resumed = study, True, True
        self._progress = progress
        self._latest: Progress | None = None
        self._error: BaseException | None = None
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._ingestion: Ingestion | None = None

    @classmethod
    @contextmanager
    def of(
        cls,
        study: Study,
        tokenizer: Any,
        options: CorpusOptions,
        *,
        readers: int | None = None,
        splitting: Splitting = splitting,
        progress: ProgressCallback = no_progress,
    ) -> Iterator["Reading"]:
        """Read a corpus into a study, unless that is done. On leaving the block the rest is read; after an error it is not."""
        reading = cls(study, progress)
        ingestion = Ingestion(
            study,
            tokenizer,
            options,
            readers=readers,
            splitting=splitting,
            progress=reading._note,
            on_part=reading._notify,
            stopped=reading._stop.is_set,
        )
        if study.done("sentences", ingestion.settings):
            yield reading
            return
        ingestion.begin()
        reading.done, reading.resumed, reading._ingestion = False, ingestion.parts.count > 0, ingestion
        thread = threading.Thread(target=reading._run, name="reading", daemon=True)
        thread.start()
        try:
            yield reading
            reading.wait()
        finally:
            reading._stop.set()
            thread.join()

    def _run(self) -> None:
        assert self._ingestion is not None
        try:
            finished = self._ingestion.run()
        except BaseException as error:  # raised again in the thread that uses the text
            self._error = error
            self._notify()
            return
        with self._changed:
            if finished:
                self.done = True
                self._ingestion.parts.drop()
            self._changed.notify_all()

    def _note(self, progress: Progress) -> None:
        self._latest = progress

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def report(self) -> None:
        """Report the latest progress of the reading; raise its error, if it has failed."""
        latest, self._latest = self._latest, None
        if latest is not None:
            self._progress(latest)
        if self._error is not None:
            raise self._error

    @property
    def searched(self) -> dict[str, int] | None:
        """The number of sentences and prefixes that are not held out; None until all are read."""
        return self.study.manifest["corpus"]["searched"] if self.done else None

    def wait(self, prefixes: int | None = None) -> None:
        """Wait until this many prefixes that are not held out are read, or all."""
        while not (self.done if prefixes is None else self.has_read(prefixes)):
            with self._changed:
                self._changed.wait(_POLL)
            self.report()
        self.report()

    def has_read(self, prefixes: int) -> bool:
        """Whether this many prefixes that are not held out are read, or all."""
        return self.done or (self._ingestion is not None and self._ingestion.counts["searched prefixes"] >= prefixes)

    def batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of all sentences, in order. Waits for those that are still to be read."""
        part = rows = 0
        while (table := self._part(part)) is not None:
            yield from table.select(columns).to_batches(_BATCH)
            part, rows = part + 1, rows + len(table)
        yield from batches_of(self.study.path("sentences.parquet"), columns, skip=rows)

    def _part(self, number: int) -> pa.Table | None:
        """A part that has been read; None if all parts are replaced by the table."""
        with self._changed:
            while not self.done:
                if self._error is not None:
                    raise self._error
                if self._stop.is_set():
                    raise CorpusError("Reading was stopped.")
                if self._ingestion is not None and number < self._ingestion.parts.count:
                    return self._ingestion.parts.read(number)
                self._changed.wait(_POLL)
            return None


def batches_of(file: Any, columns: list[str], *, skip: int = 0) -> Iterator[pa.RecordBatch]:
    """Some columns of a table of sentences, after the first `skip` rows."""
    with pq.ParquetFile(file) as table:
        groups = list(range(table.num_row_groups))
        while groups and skip >= (size := table.metadata.row_group(groups[0]).num_rows):
            skip -= size
            groups.pop(0)
        for batch in table.iter_batches(_BATCH, row_groups=groups, columns=columns):
            if skip < len(batch):
                yield batch.slice(skip)
            skip = max(0, skip - len(batch))
