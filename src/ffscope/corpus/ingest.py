"""Reads a corpus into the tables of a study: sentences with their tokens, documents, and the vocabulary."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ffscope.axes import Array
from ffscope.corpus.documents import Corpus
from ffscope.corpus.files import stored_bytes
from ffscope.corpus.fingerprint import Fingerprint
from ffscope.corpus.paragraphs import Paragraph, Paragraphs, Position
from ffscope.corpus.parts import SCHEMA, Parts
from ffscope.corpus.readers import Splitting, default_readers, splitting
from ffscope.corpus.selection import Selection
from ffscope.corpus.sentences import Sentences, SentenceSplitter
from ffscope.corpus.summary import log_skipped, skipped_text, summary
from ffscope.corpus.tokenizing import TextTokenizer
from ffscope.errors import CorpusError
from ffscope.options.corpus import CorpusOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from ffscope.tokens import spelling

logger = logging.getLogger(__name__)

_REPORT_EVERY = 0.2  # seconds
_PART = 2**14  # sentences per part; the search of a long text begins with the first
_ROW_GROUP, _DOCUMENT_GROUP = 1024, 2**16  # rows; a whole group is in memory at once
_DOCUMENTS = SCHEMAS["documents.parquet"]
_FEW_BYTES = 2**24  # text that one process reads faster than several processes start


def write_sentences(
    study: Study,
    tokenizer: Any,
    options: CorpusOptions,
    *,
    readers: int | None = None,
    progress: ProgressCallback = no_progress,
) -> None:
    """Read a corpus into the study: sentences.parquet, documents.parquet, vocabulary.parquet.

    With several `readers`, that many processes split and tokenize the text. If interrupted, the next call resumes.
    """
    ingestion = Ingestion(study, tokenizer, options, readers=readers, progress=progress)
    if not study.done("sentences", ingestion.settings):
        ingestion.begin()
        ingestion.run()
        ingestion.parts.drop()


class Ingestion:
    """Reads a corpus into parts, in order, then writes the tables. The result does not depend on the number of readers."""

    def __init__(
        self,
        study: Study,
        tokenizer: Any,
        options: CorpusOptions,
        *,
        readers: int | None = None,
        splitting: Splitting = splitting,
        progress: ProgressCallback = no_progress,
        on_part: Callable[[], None] = lambda: None,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        """`splitting` gives what splits the text. `on_part` is called after a part is written. When `stopped` returns True, `run`
        writes the rows so far and returns.
        """
        self.study, self.options, self._tokenizer = study, options, tokenizer
        self._splitting, self._progress, self._on_part, self._stopped = splitting, progress, on_part, stopped
        text_tokenizer = TextTokenizer(tokenizer)
        self._splitter = SentenceSplitter(text_tokenizer, language=options.language, max_tokens=options.max_tokens)
        self._unknown = text_tokenizer.unknown if text_tokenizer.is_word_level else None
        self.corpora = [
            Corpus(source, field=options.field, pretokenized=text_tokenizer.is_word_level, on_read=self._report)
            for source in (options.corpus, options.held_out)
            if source
        ]
        files = [file for corpus in self.corpora for file in corpus.files]
        few = bool(files) and stored_bytes(files) < _FEW_BYTES
        self._readers = readers or (1 if few else default_readers())
        self.counts: Counter[str] = Counter()
        self._detail: str | None = None  # what is being read, and how much of it is done
        self._next_report = 0.0  # time of the next progress report

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that study.json stores."""
        return {**asdict(self.options), "corpus_files": [corpus.signature for corpus in self.corpora]}

    def run(self) -> bool:
        """Read the rest of the text, after `begin`. Returns whether all is read."""
        try:
            return self._run()
        finally:
            if not self.parts.count:
                self.parts.drop()  # leave nothing behind

    def _run(self) -> bool:
        start = time.perf_counter()
        complete = self._restore()
        with closing(self.selection):
            if not complete and not self._read():
                return False
        self._check_not_empty()
        self._write_tables(time.perf_counter() - start)
        return True

    def _read(self) -> bool:
        """Read the rest of the text into parts. Returns whether all is read."""
        with self._splitting(self._splitter, self._readers) as readers:
            groups = Paragraphs(self.options, self.corpora, self.selection.enough).groups(self._position)
            for paragraphs, sentences in readers.split(groups):
                self._add(paragraphs, sentences)
                if self._stopped():
                    self._write_part()
                    return False
                if self._rows >= _PART:
                    self._write_part()
                self._report()
        for source, corpus in enumerate(self.corpora):
            self.selection.end_of_source(source, corpus.skipped)
        self._write_part(last=True)
        return True

    def begin(self) -> None:
        """Open the parts: none, or those of an interrupted run."""
        self.parts = Parts(self.study, self.settings)

    def _restore(self) -> bool:
        """Start with the sentences in the parts. Returns whether these are all."""
        self.selection = Selection(self.options, self.counts)
        self._fingerprint = Fingerprint()
        self._position = Position()
        self._tables: list[pa.Table] = []
        self._rows = 0
        for number in range(self.parts.count):
            table = self.parts.read(number)
            self._add_to_fingerprint(table)
            self.selection.remember(table["text"])
        if not self.parts.count:
            return False
        note = self.parts.note(self.parts.count - 1)
        self._position = Position(*note["position"])
        self.counts.update(note["counts"])
        self.selection.restore(note["selection"])
        logger.info("Resuming the reading after %d sentences.", self.counts["sentences"])
        return note["last"]

    def _add(self, paragraphs: list[Paragraph], sentences: Sentences) -> None:
        """Add the wanted sentences of a group."""
        rows, documents = self.selection.wanted(paragraphs, sentences)
        self._position = paragraphs[-1].end
        table = self._table(paragraphs, sentences, rows, documents)
        held_out = table["held_out"].to_numpy()
        lengths, tokens = sentences.lengths[rows], pc.list_flatten(table["tokens"]).to_numpy()
        self.counts.update(
            {
                "sentences": len(rows),
                "prefixes": len(tokens),
                "cut": int(sentences.cut[rows].sum()),
                "unknown": 0 if self._unknown is None else int((tokens == self._unknown).sum()),
                "searched prefixes": int(lengths[~held_out].sum()),
                "held out prefixes": int(lengths[held_out].sum()),
            }
        )
        self._add_to_fingerprint(table)
        self._tables.append(table)
        self._rows += len(rows)

    def _table(self, paragraphs: list[Paragraph], sentences: Sentences, rows: Array, documents: Array) -> pa.Table:
        of_row = sentences.paragraphs[rows]
        lengths = sentences.lengths[rows]
        # The tokens of these rows, by their index among all tokens.
        starts = (np.cumsum(sentences.lengths) - sentences.lengths)[rows]
        at = np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        ends = (offsets, sentences.ends[at]) if len(sentences.ends) else (np.zeros_like(offsets), sentences.ends)
        first = self.counts["sentences"]
        columns = {
            "sentence": np.arange(first, first + len(rows)),
            "document": documents[of_row],
            "paragraph": np.array([paragraph.place for paragraph in paragraphs])[of_row],
            "text": [sentences.texts[row] for row in rows.tolist()],
            "tokens": _lists(offsets, sentences.tokens[at]),
            "ends": _lists(*ends),
            "next_token": sentences.next_tokens[rows],
            "held_out": np.array([paragraph.held_out for paragraph in paragraphs])[of_row],
        }
        return pa.Table.from_pydict(columns, SCHEMA)

    def _add_to_fingerprint(self, table: pa.Table) -> None:
        self._fingerprint.add(
            tokens=pc.list_flatten(table["tokens"]).to_numpy(),
            lengths=pc.list_value_length(table["tokens"]).to_numpy(),
            next_tokens=table["next_token"].to_numpy(),
            held_out=table["held_out"].to_numpy(),
        )

    def _write_part(self, *, last: bool = False) -> None:
        # After the limit of sentences no position to resume at is exact: how far is read ahead depends on the readers.
        if not self._tables or (self.selection.limited and not last):
            return
        note = {
            "position": self._position,
            "counts": self.counts,
            "selection": self.selection.state(),
            "documents": self.selection.documents,
            "last": last,
        }
        self.parts.write(pa.concat_tables(self._tables), note)
        self._tables, self._rows, self.selection.documents = [], 0, []
        self._on_part()

    def _report(self, detail: str | None = None) -> None:
        """Report how much has been read, at most every _REPORT_EVERY seconds."""
        self._detail = detail or self._detail
        if (now := time.monotonic()) >= self._next_report:
            self._next_report = now + _REPORT_EVERY
            self._progress(Progress("reading", self.counts["sentences"], detail=self._detail))

    def _check_not_empty(self) -> None:
        if not self.counts["searched"]:
            self.parts.drop()
            raise CorpusError(
                f"{self.options.corpus} has no sentence to search: {self.counts['documents']} documents were read"
                f"{skipped_text(self.options, self.counts, self.selection.skipped)}. Expected UTF-8 text."
            )

    def _write_tables(self, seconds: float) -> None:
        parts = range(self.parts.count)
        self._write_table("sentences.parquet", (self.parts.read(number) for number in parts), _ROW_GROUP)
        documents = (pa.Table.from_pylist(self.parts.note(number)["documents"], _DOCUMENTS) for number in parts)
        self._write_table("documents.parquet", documents, _DOCUMENT_GROUP)
        with self.study.table("vocabulary.parquet") as writer:
            writer.write_table(_vocabulary(self._tokenizer))
        count = self.counts["sentences"]
        self._progress(Progress("reading", count, count))
        skipped = self.selection.skipped
        log_skipped(self.options, self.counts, skipped)
        self.study.manifest["corpus"] = summary(self.options, self.counts, skipped, fingerprint=str(self._fingerprint))
        self.study.finish("sentences", self.settings, seconds=seconds, tokens=self.counts["prefixes"])

    def _write_table(self, name: str, tables: Iterable[pa.Table], size: int) -> None:
        """Write tables as row groups of equal size: the file must not depend on the parts."""
        rest = SCHEMAS[name].empty_table()
        with self.study.table(name) as writer:
            for table in tables:
                joined = pa.concat_tables([rest, table]).combine_chunks()
                whole = len(joined) - len(joined) % size
                if whole:
                    writer.write_table(joined.slice(0, whole), row_group_size=size)
                rest = joined.slice(whole)
            if len(rest):
                writer.write_table(rest)


def _lists(offsets: Array, numbers: Array) -> pa.ListArray:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(numbers, pa.int32()))


def _vocabulary(tokenizer: Any) -> pa.Table:
    tokens = range(len(tokenizer))
    spellings = [spelling(tokenizer, token) for token in tokens]
    return pa.Table.from_pydict({"token": list(tokens), "text": spellings}, SCHEMAS["vocabulary.parquet"])
