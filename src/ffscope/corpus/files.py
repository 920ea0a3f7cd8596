"""The files of a corpus, opened as streams: plain, .gz, .xz or .zst, and no line of them longer than memory takes."""

import glob
import gzip
import io
import lzma
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import cast

from ffscope.errors import CorpusError

KINDS = (".txt", ".jsonl", ".parquet", ".tokens")
PACKINGS = (".gz", ".xz", ".zst")
LONGEST = 100_000
"""Characters of the longest paragraph that is tokenized whole; a longer one is read in pieces."""
LONGEST_RECORD = 64 * 2**20
"""Bytes of the longest .jsonl line that is parsed."""


def find_files(source: str) -> list[Path]:
    """The files that a path, a folder or a glob names, in the order of their names."""
    path = Path(source).expanduser()
    if path.is_dir():
        found = sorted(file for file in path.rglob("*") if file.is_file() and kind_of(file))
        if not found:
            raise CorpusError(f"The folder {source} holds no text. Expected {_expected()} files in it.")
        return found
    if path.is_file():
        return [path]
    found = sorted(Path(name) for name in glob.glob(str(path), recursive=True) if Path(name).is_file())
    if not found:
        raise CorpusError(
            f"There is no corpus {source!r}. Name a {_expected()} file (also {', '.join(PACKINGS)}), a folder or glob of "
            "them, hf:NAME, or the bundled vital-articles."
        )
    return found


def kind_of(file: Path) -> str | None:
    """`.jsonl` for `wiki.jsonl.xz`; None for what is not text we read."""
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in PACKINGS:
        suffixes.pop()
    return suffixes[-1] if suffixes and suffixes[-1] in KINDS else None


def checked_kind(file: Path) -> str:
    """The kind of a file that was asked for by name."""
    kind = kind_of(file)
    if kind is None:
        raise CorpusError(
            f"{file} is of no known kind. Expected {_expected()}, or one of them with {', '.join(PACKINGS)}."
        )
    return kind


@contextmanager
def opened(file: Path) -> Iterator[io.BufferedIOBase]:
    """A file's bytes, unpacked. What is wrong with it becomes one sentence."""
    try:
        with ExitStack() as stack:
            yield stack.enter_context(_unpacked(file))
    except (EOFError, lzma.LZMAError, gzip.BadGzipFile, OSError) as error:
        # A damaged .zst is an OSError too, without a number.
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise CorpusError(
            f"{file} cannot be read: {reason}. It may be damaged, cut short, or not yours to read."
        ) from error


@contextmanager
def seekable(file: Path) -> Iterator[io.BufferedIOBase]:
    """A file's bytes for a reader that jumps about; a packed one is unpacked onto the disk first."""
    with opened(file) as stream:
        if file.suffix.lower() not in PACKINGS:
            yield stream
            return
        with tempfile.TemporaryFile() as unpacked:
            shutil.copyfileobj(stream, unpacked)
            unpacked.seek(0)
            yield cast("io.BufferedIOBase", unpacked)


def lines(file: Path, skipped: Counter[str]) -> Iterator[str]:
    """A file's lines; a very long one comes in pieces, cut at white space where there is some."""
    rest, first = b"", True
    with opened(file) as stream:
        while True:
            read = stream.readline(LONGEST - len(rest))
            line, rest = rest + read, b""
            if not line:
                return
            if read and len(line) == LONGEST and not line.endswith(b"\n"):
                cut = _cutting_place(line)
                line, rest = line[:cut], line[cut:]
                skipped["long lines cut into pieces"] += 1
            text = _decoded(line, skipped)
            if text is not None:
                yield text.removeprefix("\ufeff") if first else text
            first = False


def records(file: Path, skipped: Counter[str]) -> Iterator[tuple[int, bytes]]:
    """The numbered lines of a .jsonl file; one that is longer than a record should be is passed over."""
    number = 0
    with opened(file) as stream:
        while line := stream.readline(LONGEST_RECORD):
            number += 1
            if len(line) == LONGEST_RECORD and not line.endswith(b"\n"):
                skipped[f"records over {LONGEST_RECORD // 2**20} MiB"] += 1
                while (more := stream.readline(LONGEST_RECORD)) and not more.endswith(b"\n"):
                    pass
            elif line.strip():
                yield number, line


def _unpacked(file: Path) -> io.BufferedIOBase:
    packing = file.suffix.lower()
    if packing == ".gz":
        return io.BufferedReader(cast("io.RawIOBase", gzip.open(file)))
    if packing == ".xz":
        return io.BufferedReader(cast("io.RawIOBase", lzma.open(file)))
    if packing == ".zst":
        import pyarrow

        return io.BufferedReader(pyarrow.input_stream(str(file), compression="zstd"))
    return file.open("rb")


def _decoded(line: bytes, skipped: Counter[str]) -> str | None:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        skipped["lines that are not UTF-8"] += 1
        return None


def _cutting_place(line: bytes) -> int:
    """Behind the last space; where there is none, before the last character that may be incomplete."""
    space = line.rfind(b" ")
    if space > 0:
        return space + 1
    place = len(line) - 1
    while place > len(line) - 4 and line[place] & 0b1100_0000 == 0b1000_0000:
        place -= 1
    return place


def _expected() -> str:
    return f"{', '.join(KINDS[:-1])} or {KINDS[-1]}"
