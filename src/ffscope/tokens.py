"""Tokens as a person may safely see them: white space visible, nothing that a terminal or a page would obey."""

import unicodedata
from typing import Any

_VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥"}
_LONGEST = 60


def visible(text: str) -> str:
    """Text with its outer spaces and its line breaks shown, and control and direction marks spelt out."""
    body = text.strip(" ")
    start = len(text) - len(text.lstrip(" ")) if body else len(text)
    end = len(text) - start - len(body)
    shown = "␣" * start + "".join(map(_character, body)) + "␣" * end
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def spelling(tokenizer: Any, token: int) -> str:
    """One token, visible. Half a character has no text of its own: then it stands as the tokenizer writes it."""
    if tokenizer is None:
        return f"#{token}"
    text = tokenizer.decode([token])
    if not text or "\N{REPLACEMENT CHARACTER}" in text:
        text = tokenizer.convert_ids_to_tokens(token)
    return visible(text if text is not None else f"#{token}")


def _character(character: str) -> str:
    if character in _VISIBLE and character != " ":
        return _VISIBLE[character]
    # Cc, Cf, Cs, Co, Cn: escapes, direction marks, lone surrogates and the like. Zl and Zp end a line.
    if unicodedata.category(character)[0] == "C" or unicodedata.category(character) in ("Zl", "Zp"):
        return f"<{ord(character):04X}>"
    return character
