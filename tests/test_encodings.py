"""Encodings of a corpus: text in any encoding, and binary formats that are refused by name."""

import gzip
import json
import lzma
import random
import zlib
from itertools import chain

import pytest

from ffscope.corpus.documents import Corpus
from ffscope.corpus.encodings import HEAD
from ffscope.errors import CorpusError

LINES = ["One is here. Ünïcödé 😀.", "日本語です。はい、そうです。", "Привет, мир. Как дела?"]
MARKED = ["utf-8-sig", "utf-16", "utf-32", "utf-16-be", "utf-32-be"]


def encoded(text, encoding):
    mark = "\ufeff" if encoding.endswith("-be") else ""  # the others write their own
    return f"{mark}{text}".encode(encoding)


def paragraphs(file):
    return [list(document.paragraphs) for document in Corpus(str(file))]


@pytest.mark.parametrize("encoding", MARKED)
@pytest.mark.parametrize(("packing", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_a_byte_order_mark_is_obeyed(tmp_path, encoding, packing, pack):
    contents = {
        "a.txt": "\n".join(LINES),
        "a.jsonl": "".join(json.dumps({"text": line}, ensure_ascii=False) + "\n" for line in LINES),
        "a.tokens": " = Title = \n" + "\n".join(LINES),
    }
    for name, content in contents.items():
        file = tmp_path / f"{name}{packing}"
        file.write_bytes(pack(encoded(content, encoding)))
        assert list(chain(*paragraphs(file))) == LINES


def test_characters_across_blocks_and_broken_ones(tmp_path, monkeypatch):
    monkeypatch.setattr("ffscope.corpus.streams.BLOCK", 7)
    (tmp_path / "a.txt").write_bytes(encoded("\n".join(LINES), "utf-16") + b"\n")
    corpus = Corpus(str(tmp_path / "a.txt"))
    assert "".join(text for document in corpus for text in document.paragraphs) == "".join(LINES) + "\ufffd"
    assert corpus.skipped["characters that are not UTF-16 replaced"] == 1


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("text", [*LINES, "\n".join(LINES) * 50, json.dumps({"text": "Hello there."})])
def test_an_encoding_without_its_mark_is_named(tmp_path, encoding, text):
    for name in ("a.txt", "a.jsonl"):
        (tmp_path / name).write_bytes(text.encode(encoding))
        expected = f"{name} looks like {encoding[:6].upper()} without a byte order mark. Convert it to UTF-8"
        with pytest.raises(CorpusError, match=expected):
            paragraphs(tmp_path / name)


NOISE = random.Random(0).randbytes(3000)
BINARY = {
    "a PNG image": b"\x89PNG\r\n\x1a\n" + zlib.compress(NOISE),
    "a JPEG image": b"\xff\xd8\xff\xe0" + NOISE,
    "a GIF image": b"GIF89a" + NOISE,
    "a PDF document": b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj",
    "a ZIP archive": b"PK\x03\x04" + NOISE,
    "gzip data; rename it to end in .gz": gzip.compress(b"text"),
    "xz data": lzma.compress(b"text"),
    "zstd data": b"\x28\xb5\x2f\xfd" + NOISE,
    "a parquet file; rename it to end in .parquet": b"PAR1" + NOISE,
    "an ELF program": b"\x7fELF\x02\x01\x01" + bytes(9),
    "an SQLite database": b"SQLite format 3\x00" + bytes(100),
    "a tar archive": b"name.txt".ljust(257, b"\0") + b"ustar\x0000",
    "binary data": NOISE,
}


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.tokens", "a.txt.gz"])
def test_what_is_not_text_is_refused_by_name(tmp_path, kind, name):
    content = gzip.compress(BINARY[kind]) if name.endswith(".gz") else BINARY[kind]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=rf"{name} is not text: it is {kind}"):
        paragraphs(tmp_path / name)


def test_one_binary_file_among_texts_is_refused_before_any_is_read(tmp_path):
    (tmp_path / "a.txt").write_text("Text.")
    (tmp_path / "z.txt").write_bytes(BINARY["a PNG image"])
    with pytest.raises(CorpusError, match=r"z\.txt is not text: it is a PNG image"):
        next(iter(Corpus(str(tmp_path))))


@pytest.mark.parametrize(
    "text",
    [
        "A NUL\0 here. Fine.",
        "ab\0 c",
        "Good text. " * 100 + "\0" * 9,
        "\x1b[31mred\x1b[0m " * 30,
        "Page one.\f",
        "GIF89a is a format.",
        "PAR1 is a gene.",
        "\ufffd\ufffe\U0010ffff",
    ],
)
def test_a_stray_control_character_is_text(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    assert paragraphs(tmp_path / "a.txt") == [[text]]


def test_a_character_may_lie_across_the_end_of_what_is_looked_at(tmp_path):
    text = "x" * (HEAD - 1) + "é " + "\0 y"
    (tmp_path / "a.txt").write_text(text)
    assert paragraphs(tmp_path / "a.txt") == [[text]]
