"""The corpus of a study: its sentences with their tokens, its documents, and the vocabulary, as tables."""

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
from ffscope.corpus.sentences import Cutter, Sentence, reads_words
from ffscope.errors import CorpusError
from ffscope.options.corpus import CorpusOptions
from ffscope.progress import Progress, ProgressCallback, no_progress
from ffscope.queries.disk_set import DiskSet
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from ffscope.tokens import spelling

logger = logging.getLogger(__name__)

_EVERY = 20  # of so many documents, the last is held out
_UNKNOWN = 0.1  # of all words, from where on a person is told
_TELL_EVERY = 0.2  # seconds
_ROWS = 1024  # of a row group: what is in memory at once


def write_sentences(
    study: Study, tokenizer: Any, reading: CorpusOptions, *, progress: ProgressCallback = no_progress
) -> None:
    """Read a corpus into the study: sentences.parquet, documents.parquet, vocabulary.parquet."""
    text = _Text(tokenizer, reading, progress)
    settings = {**asdict(reading), "corpus_files": text.signature}
    if study.done("sentences", settings):
        return
    start = time.perf_counter()
    with (
        study.table("documents.parquet") as documents,
        study.table("sentences.parquet") as sentences,
        text.knowing_duplicates(),
    ):
        for rows in text.rows(documents):
            sentences.write_table(pa.Table.from_pylist(rows, SCHEMAS["sentences.parquet"]))
            text.tell()
        text.refuse_empty()
    progress(Progress("reading", text.counts["sentences"], text.counts["sentences"]))
    with study.table("vocabulary.parquet") as vocabulary:
        vocabulary.write_table(_vocabulary(tokenizer))
    text.say_what_was_left_out()
    study.manifest["corpus"] = text.summary()
    study.finish("sentences", settings, seconds=time.perf_counter() - start, tokens=text.counts["prefixes"])


class _Paragraph(NamedTuple):
    """Where a paragraph is from: which of the two corpora, which document of it, which place in that."""

    apart: bool
    number: int
    position: int
    held_out: bool
    title: str | None
    topic: str | None


class _Text:
    """A corpus and its held-out documents, on their way into a study."""

    def __init__(self, tokenizer: Any, reading: CorpusOptions, progress: ProgressCallback) -> None:
        self.reading, self._progress = reading, progress
        self.cutter = Cutter(tokenizer, language=reading.language, max_tokens=reading.max_tokens)
        words = reads_words(tokenizer)
        self._unknown = tokenizer.unk_token_id if words else None
        sources = [source for source in (reading.corpus, reading.held_out) if source]
        self.corpora = [Corpus(source, field=reading.field, words=words, watch=self.tell) for source in sources]
        self.counts: Counter[str] = Counter()
        self._where: str | None = None  # what is being read, and how far it is
        self._due = 0.0  # when progress is worth telling again
        self._seen: DiskSet | None = None  # where duplicates are dropped, and while they are
        self._digest = blake2b(digest_size=16)
        self._documents: list[dict[str, Any]] = []
        self._last = -1  # the last document that is in the table
        self._corpus_end: int | None = None  # where the documents of a held-out file begin

    @property
    def signature(self) -> list[Any]:
        return [corpus.signature for corpus in self.corpora]

    def tell(self, where: str | None = None) -> None:
        """Tell how far the reading is, though not at every turn: text that gives no sentence is read fast."""
        self._where = where or self._where
        if (now := time.monotonic()) >= self._due:
            self._due = now + _TELL_EVERY
            self._progress(Progress("reading", self.counts["sentences"], detail=self._where))

    @contextmanager
    def knowing_duplicates(self) -> Iterator[None]:
        """Within the block, sentences that were met before are dropped, if that is wanted."""
        with closing(DiskSet()) if self.reading.dedupe else nullcontext() as self._seen:
            yield

    def rows(self, documents: Any) -> Iterator[list[dict[str, Any]]]:
        """Row groups of sentences; the documents they are from go into their own table meanwhile."""
        rows: list[dict[str, Any]] = []
        for paragraph, sentences in self.cutter.sentences(self._paragraphs()):
            if self._past_the_end(paragraph):
                continue
            at = self._note(paragraph)
            rows += [self._row(sentence, paragraph, at) for sentence in sentences if self._wanted(sentence, paragraph)]
            if len(rows) >= _ROWS:
                yield rows
                rows = []
                self._write_documents(documents)
        self._write_documents(documents)
        if rows:
            yield rows

    def _paragraphs(self) -> Iterator[tuple[_Paragraph, str]]:
        """Every paragraph that may be wanted. Reading ends when enough are to be searched and a document is held out."""
        any_held_out = False
        for apart, corpus in zip((False, True), self.corpora, strict=False):
            for number, document in enumerate(corpus):
                held_out = apart or (self.reading.held_out is None and number % _EVERY == _EVERY - 1)
                if self._enough(held_out=apart):
                    if apart or any_held_out or self.reading.held_out:
                        break
                    if not held_out:
                        continue
                any_held_out |= held_out
                empty = True
                for position, text in enumerate(document.paragraphs):
                    empty = False
                    yield _Paragraph(apart, number, position, held_out, document.title, document.topic), text
                    if self._enough(held_out=held_out):
                        break
                corpus.skipped["documents without text"] += empty

    def _past_the_end(self, paragraph: _Paragraph) -> bool:
        """Whether a paragraph was read ahead of what is wanted: paragraphs come in groups."""
        one_more = paragraph.number > self._last and self.counts["documents held out"] > 0
        late = self.reading.held_out is None and self._enough(held_out=False) and one_more
        return late or self._enough(held_out=paragraph.held_out)

    def _enough(self, *, held_out: bool) -> bool:
        limit = self.reading.sentences
        return limit is not None and self.counts["held out" if held_out else "searched"] >= limit

    def _wanted(self, sentence: Sentence, paragraph: _Paragraph) -> bool:
        if self._enough(held_out=paragraph.held_out):
            return False
        if self._seen is not None and not self._seen.add(sentence.text):
            self.counts["duplicates"] += 1
            return False
        return True

    def _note(self, paragraph: _Paragraph) -> int:
        """The number of a paragraph's document, which is in the table from its first paragraph on."""
        if paragraph.apart and self._corpus_end is None:
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

    def refuse_empty(self) -> None:
        if not self.counts["searched"]:
            raise CorpusError(
                f"{self.reading.corpus} gives no sentence to search: {self.counts['documents']} documents were read"
                f"{self._left_out()}. Expected UTF-8 text."
            )

    def say_what_was_left_out(self) -> None:
        left_out = self._left_out()
        if left_out:
            logger.warning("Read %d sentences%s.", self.counts["sentences"], left_out)
        unknown = self.counts["unknown"] / max(1, self.counts["prefixes"])
        if unknown > _UNKNOWN:
            logger.warning(
                "%.0f %% of the words are not in the model's dictionary. It reads words parted by spaces, punctuation too, as in "
                "WikiText's .tokens files.",
                100 * unknown,
            )

    def _left_out(self) -> str:
        counts = [f"{count} {what}" for what, count in self._skipped().items()]
        if self.counts["cut"]:
            counts.append(f"{self.counts['cut']} sentences cut at {self.reading.max_tokens} tokens")
        if self.counts["duplicates"]:
            counts.append(f"{self.counts['duplicates']} duplicate sentences dropped")
        return "; " + ", ".join(counts) if counts else ""

    def _skipped(self) -> dict[str, int]:
        total = sum((corpus.skipped for corpus in self.corpora), self.cutter.skipped)
        return dict(sorted(total.items()))

    def summary(self) -> dict[str, Any]:
        """The manifest's account of the corpus."""
        counts = self.counts
        sides = {
            name: {"sentences": counts[side], "prefixes": counts[f"{side} prefixes"]}
            for name, side in (("searched", "searched"), ("held_out", "held out"))
        }
        sides["held_out"]["documents"] = counts["documents held out"]
        return {
            "source": self.reading.corpus,
            **{name: counts[name] for name in ("documents", "sentences", "prefixes", "cut", "duplicates")},
            **sides,
            "skipped": self._skipped(),
            "fingerprint": self._digest.hexdigest(),
        }


def _vocabulary(tokenizer: Any) -> pa.Table:
    tokens = range(len(tokenizer))
    spelt = [spelling(tokenizer, token) for token in tokens]
    return pa.Table.from_pydict({"token": list(tokens), "text": spelt}, SCHEMAS["vocabulary.parquet"])
