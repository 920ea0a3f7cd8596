"""The files of a corpus as streams: plain, .gz, .xz or .zst; text as UTF-8, and no line of it longer than memory takes."""

import codecs
import gzip
import io
import lzma
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from ffscope.corpus.encodings import HEAD, encoding_of
from ffscope.corpus.files import PACKINGS
from ffscope.errors import CorpusError, first_line
from ffscope.panics import Unreadable, guarded

BLOCK = 2**20
"""Bytes that are read at once."""
LONGEST_RECORD = 64 * 2**20
"""Bytes of the longest .jsonl line that is parsed."""

_LINE_BREAKS = re.compile(rb"[\r\n]+")

Watch = Callable[[str], None]
"""Is told what is being read and how far it is: "wiki.txt.gz, 12.4 of 69.2 MB"."""


def unwatched(_: str) -> None:
    """Where nobody wants to know."""


@contextmanager
def opened(file: Path, watch: Watch = unwatched) -> "Iterator[io.BufferedReader[Any]]":
    """A file's bytes, unpacked. What is wrong with it becomes one sentence."""
    with ExitStack() as stack:
        with one_sentence(file):
            packed = stack.enter_context(file.open("rb"))
            content = stack.enter_context(_unpacked(packed, file.suffix.lower()))
            size = file.stat().st_size
        yield stack.enter_context(io.BufferedReader(_Watched(file, size, packed, content, watch), BLOCK))


@contextmanager
def opened_text(file: Path, skipped: Counter[str], watch: Watch = unwatched) -> "Iterator[io.BufferedReader[Any]]":
    """A text file's bytes as UTF-8 without a byte order mark. A file that is not text is refused."""
    with opened(file, watch) as stream:
        mark, encoding = encoding_of(stream.peek(HEAD)[:HEAD], file)
        stream.read(len(mark))
        if encoding == "utf-8":
            yield stream
        else:
            yield io.BufferedReader(_Transcoded(stream, encoding, skipped), BLOCK)


@contextmanager
def seekable(file: Path, watch: Watch = unwatched) -> Iterator[BinaryIO]:
    """A file's bytes for a reader that jumps about; a packed one is unpacked onto the disk first."""
    if file.suffix.lower() not in PACKINGS:
        with one_sentence(file):
            plain = file.open("rb")
        with plain:
            yield plain
        return
    with opened(file, watch) as stream, tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(stream, unpacked, BLOCK)
        unpacked.seek(0)
        yield cast("BinaryIO", unpacked)


def check_text(file: Path) -> None:
    """Raise where a file cannot be opened or is not text, before hours are spent on those before it."""
    with opened_text(file, Counter()):
        pass


def blocks(file: Path, skipped: Counter[str], watch: Watch = unwatched) -> Iterator[str]:
    """A file's text in stretches of whole lines; a very long line comes in pieces, cut at white space where there is some."""
    rest = b""
    with opened_text(file, skipped, watch) as stream:
        while read := stream.read(BLOCK):
            data = rest + read
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            if not end and len(read) == BLOCK:
                end = _cutting_place(data)
                skipped["long lines cut into pieces"] += 1
            rest = data[end:]
            yield _decoded(data[:end], skipped)
    yield _decoded(rest, skipped)


def records(file: Path, skipped: Counter[str], watch: Watch = unwatched) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a .jsonl file; one that is longer than a record should be is passed over."""
    number = 0
    with opened_text(file, skipped, watch) as stream:
        while line := stream.readline(LONGEST_RECORD):
            number += 1
            if len(line) == LONGEST_RECORD and not line.endswith(b"\n"):
                skipped[f"records over {LONGEST_RECORD // 2**20} MiB"] += 1
                while (more := stream.readline(BLOCK)) and not more.endswith(b"\n"):
                    pass
            elif line.strip():
                yield number, line


@contextmanager
def one_sentence(file: Path, how: str = "") -> Iterator[None]:
    """Turn whatever the readers of a file raise into one of our errors. `how` names the format they read, as in " as parquet"."""
    try:
        with guarded():
            yield
    except Unreadable as unreadable:
        raise _error(file, how, unreadable.error) from unreadable.error
    except MemoryError as error:  # a damaged file may claim any size
        raise _error(file, how, error) from error


def _error(file: Path, how: str, error: BaseException) -> CorpusError:
    reason = getattr(error, "strerror", None) or first_line(error)
    return CorpusError(f"{file} cannot be read{how}: {reason}. It may be damaged, cut short, or not yours to read.")


class _Watched(io.RawIOBase):
    """A file's bytes, unpacked; with each read someone is told how far it is."""

    def __init__(self, file: Path, size: int, packed: BinaryIO, content: Any, watch: Watch) -> None:
        self._file, self._size, self._packed, self._content, self._watch = file, size, packed, content, watch
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._watch(self._where())
        with one_sentence(self._file):
            data = self._content.read(len(buffer))
        buffer[: len(data)] = data
        self._done += len(data)
        return len(data)

    def _where(self) -> str:
        where = f"{self._file.name}, {_megabytes(self._packed.tell())} of {_megabytes(self._size)} MB"
        return where if self._content is self._packed else f"{where}, {_megabytes(self._done)} MB unpacked"


class _Transcoded(io.RawIOBase):
    """Text of another encoding as UTF-8. What is not of that encoding becomes U+FFFD, and is counted."""

    def __init__(self, stream: "io.BufferedReader[Any]", encoding: str, skipped: Counter[str]) -> None:
        self._stream, self._skipped = stream, skipped
        self._name = encoding[:6].upper()
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = b"more"
        while not self._ready and read:
            read = self._stream.read(BLOCK)
            text = self._decoder.decode(read, final=not read)
            if damaged := text.count("\N{REPLACEMENT CHARACTER}"):
                self._skipped[f"characters that are not {self._name} replaced"] += damaged
            self._ready = text.encode()
        data, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def _unpacked(packed: BinaryIO, packing: str) -> Any:
    if packing == ".gz":
        return gzip.open(packed)
    if packing == ".xz":
        return lzma.open(packed)
    if packing == ".zst":
        import pyarrow

        return pyarrow.input_stream(packed, compression="zstd")
    return packed


def _decoded(data: bytes, skipped: Counter[str]) -> str:
    """Whole lines as text, without those that are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "\n".join(_decoded_lines(_LINE_BREAKS.split(data), skipped))


def _decoded_lines(lines: list[bytes], skipped: Counter[str]) -> Iterator[str]:
    for line in lines:
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            skipped["lines that are not UTF-8"] += 1


def _cutting_place(line: bytes) -> int:
    """Behind the last space; where there is none, before a character near the end: what is left is long enough to be judged."""
    space = line.rfind(b" ")
    if space > 0:
        return space + 1
    last = place = len(line) - 1 - BLOCK // 16
    while place > last - 3 and line[place] & 0b1100_0000 == 0b1000_0000:
        place -= 1
    return place


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f}"
