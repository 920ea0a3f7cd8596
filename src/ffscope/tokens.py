"""Tokens as they are displayed: white space visible, control characters escaped."""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}
_OTHER_SPACE = "⍽"  # such as no-break and thin space
_LONGEST = 60
_ID = re.compile(r"#(\d{1,9})", re.ASCII)
Vocabulary = dict[str, list[int]]
"""Spelling → token ids."""
# Byte-level tokenizers map each byte to one character: printable ones to themselves, the others to code points from 256 on.
_PRINTABLE = [*range(33, 127), *range(161, 173), *range(174, 256)]
_BYTES = {chr(byte): byte for byte in _PRINTABLE} | {
    chr(256 + i): byte for i, byte in enumerate(byte for byte in range(256) if byte not in _PRINTABLE)
}


@dataclass(frozen=True)
class Token:
    """A token as the user typed it (`asked`) and as it is spelt; the spelling shows whether a space was prepended."""

    asked: str
    id: int
    token: str


def visible(text: str, longest: int | None = _LONGEST) -> str:
    """Text with leading and trailing spaces and line breaks visible, and control and direction marks escaped."""
    body = text.strip(" ")
    start = len(text) - len(text.lstrip(" ")) if body else len(text)
    end = len(text) - start - len(body)
    shown = "␣" * start + "".join(map(_character, body)) + "␣" * end
    return shown if longest is None or len(shown) <= longest else shown[: longest - 1] + "…"


def spelling(tokenizer: Any, token: int) -> str:
    """One token as it is displayed. A token that is part of a character is shown as its bytes."""
    if tokenizer is None:
        return f"#{token}"
    text = tokenizer.decode([token])
    if text and "\N{REPLACEMENT CHARACTER}" not in text:
        return visible(text)
    spelt = tokenizer.convert_ids_to_tokens(token)
    if spelt is None:
        return f"#{token}"
    return visible(_bytes(spelt) if all(character in _BYTES for character in spelt) else spelt)


@lru_cache(maxsize=2)
def vocabulary_of(tokenizer: Any, size: int) -> Vocabulary:
    """The ids of the first `size` tokens, by spelling."""
    return by_spelling(spelling(tokenizer, token) for token in range(size))


def by_spelling(spellings: Iterable[str]) -> Vocabulary:
    """The ids by spelling, from the spellings of tokens 0, 1, 2 …"""
    vocabulary: Vocabulary = {}
    for token, spelt in enumerate(spellings):
        vocabulary.setdefault(spelt, []).append(token)
    return vocabulary


def find_tokens(vocabulary: Vocabulary, text: str) -> list[int]:
    """The ids that a text stands for: `#123` is an id; any other text is a spelling (`␣was`, `<E6><9D>`) or plain (` was`).

    The inverse of `spelling`. Several ids can share a spelling, such as a letter and the byte of that letter.
    """
    if match := _ID.fullmatch(text):
        return [int(match[1])]
    return vocabulary.get(visible(text), [])  # `visible` leaves a spelling unchanged


def _bytes(spelt: str) -> str:
    """`ĠæĿ` as ` <E6><9D>`."""
    return "".join(chr(byte) if byte < 128 else f"<{byte:02X}>" for byte in map(_BYTES.__getitem__, spelt))


def _character(character: str) -> str:
    if character in _VISIBLE and character != " ":
        return _VISIBLE[character]
    if unicodedata.category(character) == "Zs" and character != " ":
        return _OTHER_SPACE
    # Cc, Cf, Cs, Co, Cn: escapes, direction marks, lone surrogates. Zl and Zp end a line.
    if unicodedata.category(character)[0] == "C" or unicodedata.category(character) in ("Zl", "Zp"):
        return f"<{ord(character):04X}>"
    return character
