"""The files of a corpus as streams: decompressed, transcoded to UTF-8, and read in blocks of bounded size."""

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

from ffscope.ahead import ahead
from ffscope.corpus.encodings import HEAD, encoding_of
from ffscope.corpus.files import COMPRESSIONS
from ffscope.errors import CorpusError, first_line
from ffscope.panics import Unreadable, guarded

BLOCK = 2**20
"""Bytes per read."""
_BLOCKS_AHEAD = 4
LONGEST_RECORD = 64 * 2**20
"""Length in bytes of the longest .jsonl line that is parsed."""

_LINE_BREAKS = re.compile(rb"[\r\n]+")

ReadCallback = Callable[[str], None]
"""Called with what is being read and how much of it is done: "wiki.txt.gz, 12.4 of 69.2 MB"."""


def no_callback(_: str) -> None:
    """Ignores the progress of reading."""


@contextmanager
def open_file(file: Path, on_read: ReadCallback = no_callback) -> "Iterator[io.BufferedReader[Any]]":
    """A file's bytes, decompressed. Failures are raised as CorpusError."""
    with ExitStack() as stack:
        with as_corpus_error(file):
            raw = stack.enter_context(file.open("rb"))
            content = stack.enter_context(_decompress(raw, file.suffix.lower()))
            size = file.stat().st_size
        yield stack.enter_context(io.BufferedReader(_ProgressReader(file, size, raw, content, on_read), BLOCK))


@contextmanager
def open_text(
    file: Path, skipped: Counter[str], on_read: ReadCallback = no_callback
) -> "Iterator[io.BufferedReader[Any]]":
    """A text file's bytes as UTF-8 without a byte order mark; raises if the file is not text."""
    with open_file(file, on_read) as stream:
        mark, encoding = encoding_of(stream.peek(HEAD)[:HEAD], file)
        stream.read(len(mark))
        if encoding == "utf-8":
            yield stream
        else:
            yield io.BufferedReader(_TranscodingReader(stream, encoding, skipped), BLOCK)


@contextmanager
def open_seekable(file: Path, on_read: ReadCallback = no_callback) -> Iterator[BinaryIO]:
    """A file's bytes with random access; a compressed file is decompressed to disk first."""
    if file.suffix.lower() not in COMPRESSIONS:
        with as_corpus_error(file):
            plain = file.open("rb")
        with plain:
            yield plain
        return
    with open_file(file, on_read) as stream, tempfile.TemporaryFile() as copy:
        shutil.copyfileobj(stream, copy, BLOCK)
        copy.seek(0)
        yield cast("BinaryIO", copy)


def check_text(file: Path) -> None:
    """Raise if a file cannot be opened or is not text."""
    with open_text(file, Counter()):
        pass


def read_blocks(file: Path, skipped: Counter[str], on_read: ReadCallback = no_callback) -> Iterator[str]:
    """A file's text in blocks of whole lines; a very long line is split, at white space if it has any."""
    rest = b""
    with open_text(file, skipped, on_read) as stream:
        while read := stream.read(BLOCK):
            data = rest + read
            end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            if not end and len(read) == BLOCK:
                end = _cut_position(data)
                skipped["long lines cut into pieces"] += 1
            rest = data[end:]
            yield _decode(data[:end], skipped)
    yield _decode(rest, skipped)


def read_records(file: Path, skipped: Counter[str], on_read: ReadCallback = no_callback) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a .jsonl file; lines longer than LONGEST_RECORD are skipped."""
    number = 0
    with open_text(file, skipped, on_read) as stream:
        while line := stream.readline(LONGEST_RECORD):
            number += 1
            if len(line) == LONGEST_RECORD and not line.endswith(b"\n"):
                skipped[f"records over {LONGEST_RECORD // 2**20} MiB"] += 1
                while (more := stream.readline(BLOCK)) and not more.endswith(b"\n"):
                    pass
            elif line.strip():
                yield number, line


@contextmanager
def as_corpus_error(file: Path, how: str = "") -> Iterator[None]:
    """Raise whatever fails while reading a file as a CorpusError. `how` names the format, as in " as parquet"."""
    try:
        with guarded():
            yield
    except Unreadable as unreadable:
        raise _error(file, how, unreadable.error) from unreadable.error
    except MemoryError as error:  # a damaged file may declare any size
        raise _error(file, how, error) from error


def _error(file: Path, how: str, error: BaseException) -> CorpusError:
    reason = getattr(error, "strerror", None) or first_line(error)
    return CorpusError(
        f"{file} cannot be read{how}: {reason}. It may be damaged or truncated, or you may lack permission to read it."
    )


class _ProgressReader(io.RawIOBase):
    """A file's bytes, decompressed; calls `on_read` at every read."""

    def __init__(self, file: Path, size: int, raw: BinaryIO, content: Any, on_read: ReadCallback) -> None:
        self._file, self._size, self._raw, self._content, self._on_read = file, size, raw, content, on_read
        self._done = 0
        self._left = b""  # of the last block
        # Decompression takes as long as everything else that is done with a text in this process, so it has its own thread.
        blocks = iter(self._read_block, b"")
        self._blocks = (block for block in blocks) if content is raw else ahead(blocks, _BLOCKS_AHEAD)

    def _read_block(self) -> bytes:
        with as_corpus_error(self._file):
            return self._content.read(BLOCK)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._on_read(self._detail())
        data = self._left or next(self._blocks, b"")
        data, self._left = data[: len(buffer)], data[len(buffer) :]
        buffer[: len(data)] = data
        self._done += len(data)
        return len(data)

    def close(self) -> None:
        self._blocks.close()
        super().close()

    def _detail(self) -> str:
        detail = f"{self._file.name}, {_megabytes(self._raw.tell())} of {_megabytes(self._size)} MB"
        return detail if self._content is self._raw else f"{detail}, {_megabytes(self._done)} MB decompressed"


class _TranscodingReader(io.RawIOBase):
    """Text of another encoding as UTF-8. Bytes invalid in that encoding become U+FFFD and are counted."""

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


def _decompress(raw: BinaryIO, compression: str) -> Any:
    if compression == ".gz":
        return gzip.open(raw)
    if compression == ".xz":
        return lzma.open(raw)
    if compression == ".zst":
        import pyarrow

        return pyarrow.input_stream(raw, compression="zstd")
    return raw


def _decode(data: bytes, skipped: Counter[str]) -> str:
    """Whole lines as text, without the lines that are not UTF-8."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "\n".join(_decode_lines(_LINE_BREAKS.split(data), skipped))


def _decode_lines(lines: list[bytes], skipped: Counter[str]) -> Iterator[str]:
    for line in lines:
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            skipped["lines that are not UTF-8"] += 1


def _cut_position(line: bytes) -> int:
    """After the last space; without one, before a character near the end, so that the rest is long enough to recognise."""
    space = line.rfind(b" ")
    if space > 0:
        return space + 1
    last = position = len(line) - 1 - BLOCK // 16
    while position > last - 3 and line[position] & 0b1100_0000 == 0b1000_0000:
        position -= 1
    return position


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f}"
