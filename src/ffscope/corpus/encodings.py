"""The encoding of a text file, detected from its first bytes; files that are not text are rejected."""

import codecs
import unicodedata
from collections.abc import Callable
from pathlib import Path

from ffscope.errors import CorpusError

HEAD = 2**16
"""How many bytes at the start of a file are examined."""

_MARKS = {  # longer marks first: UTF-32's begins with UTF-16's
    codecs.BOM_UTF32_LE: "utf-32-le",
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
_EXPECTED = "Expected UTF-8, or UTF-16 or UTF-32 with a byte order mark."
_MAGIC = {  # checked only if the bytes are not plain text: "GIF89a is a format" is text
    b"\x89PNG\r\n\x1a\n": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"GIF8": "a GIF image",
    b"II*\x00": "a TIFF image",
    b"MM\x00*": "a TIFF image",
    b"%PDF-": "a PDF document",
    b"PK\x03\x04": "a ZIP archive (.zip, .docx, .xlsx, .epub or .pt)",
    b"\x1f\x8b": "gzip data; rename it to end in .gz",
    b"\xfd7zXZ\x00": "xz data; rename it to end in .xz",
    b"\x28\xb5\x2f\xfd": "zstd data; rename it to end in .zst",
    b"BZh91AY&SY": "bzip2 data; decompress it first",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
    b"Rar!\x1a\x07": "a RAR archive",
    b"PAR1": "a parquet file; rename it to end in .parquet",
    b"ARROW1": "an Arrow file",
    b"GGUF": "a GGUF model",
    b"\x7fELF": "an ELF program",
    b"MZ\x90\x00": "a Windows program",
    b"SQLite format 3\x00": "an SQLite database",
    b"\x93NUMPY": "a NumPy array",
    b"\x89HDF": "an HDF5 file",
    b"\xd0\xcf\x11\xe0": "an old Microsoft Office document",
    b"RIFF": "an audio, video or WebP file",
    b"OggS": "an Ogg audio file",
    b"fLaC": "a FLAC audio file",
    b"ID3\x03": "an MP3 audio file",
    b"ID3\x04": "an MP3 audio file",
}
_TAR = slice(257, 262), b"ustar"
# Control characters that do not occur in text: all but tab, line feed, vertical tab, form feed, return and escape.
_CONTROLS = bytes({*range(32), 127} - {*b"\t\n\v\f\r\x1b"})
_MANY_CONTROLS = 8, 0.01  # at least this many, and more than this share of the bytes: not text
_LEGIBLE = 0.9  # least share of letters, marks, digits, punctuation, symbols and white space in text
_COMMON = 0.02  # least share of ASCII and common Chinese and Japanese punctuation in text


def encoding_of(head: bytes, file: Path) -> tuple[bytes, str]:
    """The byte order mark (b"" if there is none) and the encoding of a file; raises if it is not text."""
    for mark, encoding in _MARKS.items():
        if head.startswith(mark):
            return mark, encoding
    controls = len(head) - len(head.translate(None, _CONTROLS))
    many = controls >= _MANY_CONTROLS[0] and controls > _MANY_CONTROLS[1] * len(head)
    utf_8 = _is_utf_8(head)
    if utf_8 and not controls:
        return b"", "utf-8"
    if kind := _file_type(head):
        raise CorpusError(f"{file} is not text: it is {kind}. {_EXPECTED}")
    if (many or not utf_8) and (wide := _unmarked_encoding(head)):
        raise CorpusError(f"{file} looks like {wide} without a byte order mark. Convert it to UTF-8, or add the mark.")
    if many:
        raise CorpusError(f"{file} is not text: it is binary data. {_EXPECTED}")
    return b"", "utf-8"


def _is_utf_8(head: bytes) -> bool:
    """Whether the bytes are UTF-8; the last character may be cut off."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True


def _file_type(head: bytes) -> str | None:
    if head[_TAR[0]] == _TAR[1]:
        return "a tar archive"
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def _unmarked_encoding(head: bytes) -> str | None:
    """ "UTF-16" or "UTF-32" if the bytes decode to legible text, else None."""
    for encoding, width in (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2)):
        whole = head[: len(head) - len(head) % width]
        try:
            text = codecs.getincrementaldecoder(encoding)().decode(whole)
        except UnicodeDecodeError:
            continue
        if text and _share(text, _is_legible) >= _LEGIBLE and _share(text, _is_common) >= _COMMON:
            return encoding[:6].upper()
    return None


def _share(text: str, predicate: Callable[[str], bool]) -> float:
    return sum(map(predicate, text)) / len(text)


def _is_legible(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMNPSZ" or character in "\t\n\r"


def _is_common(character: str) -> bool:
    return character.isascii() or character in "、。，！？"
