"""A corpus as a stream of documents, with counts of what was skipped."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffscope.bundled import TEXT, install_hint
from ffscope.corpus.files import checked_kind, find_files
from ffscope.corpus.streams import (
    ReadCallback,
    as_corpus_error,
    check_text,
    no_callback,
    open_seekable,
    read_blocks,
    read_records,
)
from ffscope.corpus.wikitext import detokenize, split_articles
from ffscope.errors import CorpusError
from ffscope.panics import Unreadable, guarded

BUNDLED = {"vital-articles": (TEXT, "data/summaries_en-us.json")}
"""Corpora that come as Python packages: name → package and the file in it."""

LONGEST = 100_000
"""Length in characters of the longest paragraph that is tokenized whole; a longer one is split."""

_LINE = re.compile(r"[^\r\n]+")
# A run of this many characters without white space is not text if it is ASCII (such as base64) or has few distinct characters.
# Scripts that put no spaces between words (Chinese, Japanese, Thai …) are neither.
_RUN, _FEW_DISTINCT = LONGEST // 10, 30


@dataclass(frozen=True)
class Document:
    """One record of a corpus. Its paragraphs are a stream that can be read once: a file may be larger than memory."""

    paragraphs: Iterable[str]
    title: str | None = None
    topic: str | None = None


class Corpus:
    """The documents of a source. Each iteration reads them from the files again.

    WikiText's .tokens files are detokenized, unless `pretokenized`: a word-level model was trained on the tokens as they are.
    """

    def __init__(
        self,
        source: str,
        *,
        field: str = "text",
        pretokenized: bool = False,
        on_read: ReadCallback = no_callback,
    ) -> None:
        if not source.strip():
            raise CorpusError(
                "The corpus is an empty string. Expected a file, a folder, a glob, hf:NAME, or the bundled vital-articles."
            )
        self.source, self.field, self.pretokenized, self.on_read = source, field, pretokenized, on_read
        self.skipped: Counter[str] = Counter()
        self.files = _files(source)

    def __iter__(self) -> Iterator[Document]:
        self.skipped.clear()
        if self.source in BUNDLED:
            self.on_read(self.source)
            yield from self._bundled(self.files[0])
            return
        if self.source.startswith("hf:"):
            self.on_read(self.source)
            yield from self._rows(stream_hub(self.source), f"the dataset {self.source}")
        kinds = [checked_kind(file) for file in self.files]
        for file, kind in zip(self.files, kinds, strict=True):
            if kind != ".parquet":
                check_text(file)
        for file, kind in zip(self.files, kinds, strict=True):
            yield from _READERS[kind](self, file)

    @property
    def signature(self) -> list[list[str | int]]:
        """The names and sizes of the files, which show whether a corpus has changed since it was read."""
        return [[file.name, file.stat().st_size] for file in self.files]

    def _text(self, file: Path) -> Iterator[Document]:
        yield self._document(read_blocks(file, self.skipped, self.on_read), title=file.name)

    def _wikitext(self, file: Path) -> Iterator[Document]:
        for title, paragraphs in split_articles(self._paragraphs(read_blocks(file, self.skipped, self.on_read))):
            yield self._document(paragraphs if self.pretokenized else map(detokenize, paragraphs), title=title)

    def _jsonl(self, file: Path) -> Iterator[Document]:
        yield from self._rows(self._parse_json(file, read_records(file, self.skipped, self.on_read)), str(file))

    def _parquet(self, file: Path) -> Iterator[Document]:
        import pyarrow.parquet

        with open_seekable(file, self.on_read) as stream, as_corpus_error(file, " as parquet"):
            table = pyarrow.parquet.ParquetFile(stream)
            wanted = [name for name in (self.field, "title", "topic") if name in table.schema_arrow.names]
            if self.field not in wanted:
                raise CorpusError(self._missing_field(str(file), table.schema_arrow.names))
            yield from self._rows(self._parquet_rows(file, table, wanted), str(file))

    def _parquet_rows(self, file: Path, table: Any, columns: list[str]) -> Iterator[Mapping[str, Any]]:
        done, total = 0, table.metadata.num_rows
        for batch in table.iter_batches(batch_size=64, columns=columns):
            self.on_read(f"{file.name}, {done:,} of {total:,} rows")
            done += len(batch)
            try:
                with guarded():
                    rows = batch.to_pylist()
            except Unreadable:  # such as text that is not UTF-8
                yield from self._readable_rows(batch)
            else:
                yield from rows

    def _readable_rows(self, batch: Any) -> Iterator[Mapping[str, Any]]:
        """The rows of a batch that can be read, one by one."""
        for number in range(len(batch)):
            try:
                with guarded():
                    (row,) = batch.slice(number, 1).to_pylist()
            except Unreadable:
                self.skipped["records that are not UTF-8"] += 1
            else:
                yield row

    def _bundled(self, file: Path) -> Iterator[Document]:
        for row in json.loads(file.read_text(encoding="utf-8")).values():
            yield self._document([row["extract"]], title=row["title"], topic=row["topic"])

    def _parse_json(self, file: Path, lines: Iterable[tuple[int, bytes]]) -> Iterator[Mapping[str, Any]]:
        for number, line in lines:
            try:
                row = json.loads(line)
            except UnicodeDecodeError:
                self.skipped["lines that are not UTF-8"] += 1
                continue
            except (ValueError, RecursionError):
                if number == 1:
                    raise CorpusError(
                        f'{file} is not JSON lines: expected an object such as {{"text": …}} in line 1, found {line[:40]!r}.'
                    ) from None
                row = None
            if isinstance(row, dict):
                yield row
            else:
                self.skipped["lines that are no JSON object"] += 1

    def _rows(self, rows: Iterable[Mapping[str, Any]], where: str) -> Iterator[Document]:
        for number, row in enumerate(rows):
            text = row.get(self.field)
            if self.field not in row and number == 0:
                raise CorpusError(self._missing_field(where, list(row)))
            if isinstance(text, str):
                yield self._document([text], title=row.get("title"), topic=row.get("topic"))
            else:
                self.skipped[f"records without text in {self.field!r}"] += 1

    def _missing_field(self, where: str, names: list[str]) -> str:
        return (
            f"{where} has no field {self.field!r}. Its fields: {', '.join(map(repr, names[:10])) or 'none'}. "
            "Name the field that has the text with --field."
        )

    def _document(self, texts: Iterable[str], title: Any, topic: Any = None) -> Document:
        names = (self._replace_surrogates(name, "titles") if isinstance(name, str) else None for name in (title, topic))
        return Document(self._paragraphs(texts), *names)

    def _paragraphs(self, texts: Iterable[str]) -> Iterator[str]:
        """The paragraphs that are not blank, the long ones split."""
        for text in texts:
            for paragraph in _LINE.findall(self._replace_surrogates(text, "texts")):
                yield from self._split_long(paragraph)

    def _replace_surrogates(self, text: str, what: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:  # a lone surrogate: valid in JSON and file names, but tokenizers reject it
            self.skipped[f"{what} with half a character replaced"] += 1
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def _split_long(self, paragraph: str) -> Iterator[str]:
        begin, end = 0, len(paragraph)
        while begin < end:
            cut = end
            if end - begin > LONGEST:
                # Without a space, cut early: the rest then stays long enough for _cannot_be_text.
                cut = paragraph.rfind(" ", begin + 1, begin + LONGEST) + 1 or begin + LONGEST - LONGEST // 10
                self.skipped["long lines cut into pieces"] += 1
            piece, begin = paragraph[begin:cut], cut
            if _cannot_be_text(piece):
                self.skipped[f"stretches of over {_RUN:,} characters that cannot be text"] += 1
            elif not piece.isspace():
                yield piece


def _cannot_be_text(piece: str) -> bool:
    if len(piece) < _RUN or len(piece.split(None, 1)) != 1:
        return False
    return piece.isascii() or len(set(piece[:_RUN])) < _FEW_DISTINCT


_READERS = {".txt": Corpus._text, ".tokens": Corpus._wikitext, ".jsonl": Corpus._jsonl, ".parquet": Corpus._parquet}


def stream_hub(source: str) -> Iterable[Mapping[str, Any]]:
    """The rows of `hf:NAME[/CONFIG][:SPLIT]`, streamed by the `datasets` library; NAME is `owner/name`, or one word."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise CorpusError(
            f"Reading {source} needs the `datasets` library, which is not installed. Run: pip install datasets"
        ) from None
    name, _, split = source.removeprefix("hf:").partition(":")
    words = name.split("/")
    path, config = ("/".join(words[:2]), "/".join(words[2:]) or None) if len(words) > 1 else (name, None)
    try:
        with guarded():  # the library raises its own exceptions and those of requests and fsspec
            yield from datasets.load_dataset(path, config, split=split or "train", streaming=True)
    except Unreadable as unreadable:
        raise CorpusError(
            f"{source} cannot be read: {unreadable}. Expected hf:NAME[/CONFIG][:SPLIT], a dataset on the hub or in your "
            "cache."
        ) from unreadable.error


def _files(source: str) -> list[Path]:
    if source.startswith("hf:"):
        return []
    if source not in BUNDLED:
        return find_files(source)
    package, name = BUNDLED[source]
    folder = package.folder
    if folder is None:
        raise CorpusError(f"The corpus {source!r} is not installed. {install_hint()}")
    return [folder / name]
