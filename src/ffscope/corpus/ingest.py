"""Reads a corpus into the tables of a study: sentences with their tokens, documents, and the vocabulary."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict
from hashlib import blake2b
from typing import Any, NamedTuple

import pyarrow as pa

from ffscope.corpus.documents import Corpus
from ffscope.corpus.sentences import Sentence, SentenceSplitter, is_word_level
from ffscope.errors import CorpusError
from ffscope.options.corpus import CorpusOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.queries.disk_set import DiskSet
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from ffscope.tokens import spelling

logger = logging.getLogger(__name__)

_HELD_OUT_EVERY = 20  # every twentieth document is held out
_UNKNOWN_WARNING = 0.1  # share of unknown words above which a warning is logged
_REPORT_EVERY = 0.2  # seconds
_ROWS = 1024  # per row group; a whole group is in memory at once


def write_sentences(
    study: Study, tokenizer: Any, options: CorpusOptions, *, progress: ProgressCallback = no_progress
) -> None:
    """Read a corpus into the study: sentences.parquet, documents.parquet, vocabulary.parquet."""
    reader = _CorpusReader(tokenizer, options, progress)
    settings = {**asdict(options), "corpus_files": reader.signature}
    if study.done("sentences", settings):
        return
    start = time.perf_counter()
    with (
        study.table("documents.parquet") as documents,
        study.table("sentences.parquet") as sentences,
        reader.dropping_duplicates(),
    ):
        for rows in reader.rows(documents):
            sentences.write_table(pa.Table.from_pylist(rows, SCHEMAS["sentences.parquet"]))
            reader.report_progress()
        reader.check_not_empty()
    progress(Progress("reading", reader.counts["sentences"], reader.counts["sentences"]))
    with study.table("vocabulary.parquet") as vocabulary:
        vocabulary.write_table(_vocabulary(tokenizer))
    reader.log_skipped()
    study.manifest["corpus"] = reader.summary()
    study.finish("sentences", settings, seconds=time.perf_counter() - start, tokens=reader.counts["prefixes"])


class _Paragraph(NamedTuple):
    """Where a paragraph comes from: the corpus or the held-out file, the document, and the position in it."""

    in_held_out_file: bool
    number: int
    position: int
    held_out: bool
    title: str | None
    topic: str | None


class _CorpusReader:
    """Reads a corpus and its held-out documents into rows, and counts them."""

    def __init__(self, tokenizer: Any, options: CorpusOptions, progress: ProgressCallback) -> None:
        self.options, self._progress = options, progress
        self.splitter = SentenceSplitter(tokenizer, language=options.language, max_tokens=options.max_tokens)
        pretokenized = is_word_level(tokenizer)
        self._unknown = tokenizer.unk_token_id if pretokenized else None
        sources = [source for source in (options.corpus, options.held_out) if source]
        self.corpora = [
            Corpus(source, field=options.field, pretokenized=pretokenized, on_read=self.report_progress)
            for source in sources
        ]
        self.counts: Counter[str] = Counter()
        self._detail: str | None = None  # what is being read, and how much of it is done
        self._next_report = 0.0  # time of the next progress report
        self._sentence_texts: DiskSet | None = None  # the sentences so far, while duplicates are dropped
        self._digest = blake2b(digest_size=16)
        self._documents: list[dict[str, Any]] = []
        self._last = -1  # number of the last document in the table
        self._corpus_end: int | None = None  # number of the first document of the held-out file

    @property
    def signature(self) -> list[Any]:
        return [corpus.signature for corpus in self.corpora]

    def report_progress(self, detail: str | None = None) -> None:
        """Report how much has been read, at most every _REPORT_EVERY seconds."""
        self._detail = detail or self._detail
        if (now := time.monotonic()) >= self._next_report:
            self._next_report = now + _REPORT_EVERY
            self._progress(Progress("reading", self.counts["sentences"], detail=self._detail))

    @contextmanager
    def dropping_duplicates(self) -> Iterator[None]:
        """Within the block, repeated sentences are dropped if the options say so."""
        with closing(DiskSet()) if self.options.dedupe else nullcontext() as self._sentence_texts:
            yield

    def rows(self, documents: Any) -> Iterator[list[dict[str, Any]]]:
        """Row groups of sentences; their documents are written to `documents` along the way."""
        rows: list[dict[str, Any]] = []
        for paragraph, sentences in self.splitter.sentences(self._paragraphs()):
            if self._past_the_end(paragraph):
                continue
            document = self._add_document(paragraph)
            rows += [
                self._row(sentence, paragraph, document)
                for sentence in sentences
                if self._is_wanted(sentence, paragraph)
            ]
            if len(rows) >= _ROWS:
                yield rows
                rows = []
                self._write_documents(documents)
        self._write_documents(documents)
        if rows:
            yield rows

    def _paragraphs(self) -> Iterator[tuple[_Paragraph, str]]:
        """The paragraphs to read. Reading ends when there are enough sentences to search and a document is held out."""
        any_held_out = False
        for in_held_out_file, corpus in zip((False, True), self.corpora, strict=False):
            for number, document in enumerate(corpus):
                held_out = in_held_out_file or (
                    self.options.held_out is None and number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1
                )
                if self._enough(held_out=in_held_out_file):
                    if in_held_out_file or any_held_out or self.options.held_out:
                        break
                    if not held_out:
                        continue
                any_held_out |= held_out
                empty = True
                for position, text in enumerate(document.paragraphs):
                    empty = False
                    yield _Paragraph(in_held_out_file, number, position, held_out, document.title, document.topic), text
                    if self._enough(held_out=held_out):
                        break
                corpus.skipped["documents without text"] += empty

    def _past_the_end(self, paragraph: _Paragraph) -> bool:
        """Whether a paragraph comes after the last one needed: paragraphs are tokenized in groups, so some are read ahead."""
        another_document = paragraph.number > self._last and self.counts["documents held out"] > 0
        late = self.options.held_out is None and self._enough(held_out=False) and another_document
        return late or self._enough(held_out=paragraph.held_out)

    def _enough(self, *, held_out: bool) -> bool:
        limit = self.options.sentences
        return limit is not None and self.counts["held out" if held_out else "searched"] >= limit

    def _is_wanted(self, sentence: Sentence, paragraph: _Paragraph) -> bool:
        if self._enough(held_out=paragraph.held_out):
            return False
        if self._sentence_texts is not None and not self._sentence_texts.add(sentence.text):
            self.counts["duplicates"] += 1
            return False
        return True

    def _add_document(self, paragraph: _Paragraph) -> int:
        """The number of a paragraph's document, which is added to the table at its first paragraph."""
        if paragraph.in_held_out_file and self._corpus_end is None:
            self._corpus_end = self._last + 1
        number = paragraph.number + (self._corpus_end or 0)
        if number > self._last:
            self._last = number
            self.counts.update({"documents": 1, "documents held out": int(paragraph.held_out)})
            row = {"document": number, "title": paragraph.title, "topic": paragraph.topic}
            self._documents.append({**row, "held_out": paragraph.held_out})
        return number

    def _row(self, sentence: Sentence, paragraph: _Paragraph, document: int) -> dict[str, Any]:
        number, length = self.counts["sentences"], len(sentence.tokens)
        side = "held out" if paragraph.held_out else "searched"
        self.counts.update(
            {"sentences": 1, "prefixes": length, "cut": int(sentence.cut), side: 1, f"{side} prefixes": length}
        )
        self.counts["unknown"] += sentence.tokens.count(self._unknown) if self._unknown is not None else 0
        self._digest.update(f"{side} {sentence.tokens} {sentence.next_token}\n".encode())
        return {
            "sentence": number,
            "document": document,
            "paragraph": paragraph.position,
            "text": sentence.text,
            "tokens": sentence.tokens,
            "ends": sentence.ends,
            "next_token": sentence.next_token,
            "held_out": paragraph.held_out,
        }

    def _write_documents(self, documents: Any) -> None:
        if self._documents:
            documents.write_table(pa.Table.from_pylist(self._documents, SCHEMAS["documents.parquet"]))
            self._documents = []

    def check_not_empty(self) -> None:
        if not self.counts["searched"]:
            raise CorpusError(
                f"{self.options.corpus} has no sentence to search: {self.counts['documents']} documents were read"
                f"{self._skipped_text()}. Expected UTF-8 text."
            )

    def log_skipped(self) -> None:
        skipped = self._skipped_text()
        if skipped:
            logger.warning("Read %d sentences%s.", self.counts["sentences"], skipped)
        unknown = self.counts["unknown"] / max(1, self.counts["prefixes"])
        if unknown > _UNKNOWN_WARNING:
            logger.warning(
                "%.0f %% of the words are not in the model's dictionary. It expects words and punctuation separated by spaces, as "
                "in WikiText's .tokens files.",
                100 * unknown,
            )

    def _skipped_text(self) -> str:
        counts = [f"{count} {what}" for what, count in self._skipped_counts().items()]
        if self.counts["cut"]:
            counts.append(f"{self.counts['cut']} sentences cut at {self.options.max_tokens} tokens")
        if self.counts["duplicates"]:
            counts.append(f"{self.counts['duplicates']} duplicate sentences dropped")
        return "; " + ", ".join(counts) if counts else ""

    def _skipped_counts(self) -> dict[str, int]:
        total = sum((corpus.skipped for corpus in self.corpora), self.splitter.skipped)
        return dict(sorted(total.items()))

    def summary(self) -> dict[str, Any]:
        """The entry about the corpus in study.json."""
        counts = self.counts
        sides = {
            name: {"sentences": counts[side], "prefixes": counts[f"{side} prefixes"]}
            for name, side in (("searched", "searched"), ("held_out", "held out"))
        }
        sides["held_out"]["documents"] = counts["documents held out"]
        return {
            "source": self.options.corpus,
            **{name: counts[name] for name in ("documents", "sentences", "prefixes", "cut", "duplicates")},
            **sides,
            "skipped": self._skipped_counts(),
            "fingerprint": self._digest.hexdigest(),
        }


def _vocabulary(tokenizer: Any) -> pa.Table:
    tokens = range(len(tokenizer))
    spellings = [spelling(tokenizer, token) for token in tokens]
    return pa.Table.from_pydict({"token": list(tokens), "text": spellings}, SCHEMAS["vocabulary.parquet"])
