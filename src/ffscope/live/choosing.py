"""A token that a person names."""

import re

from ffscope.errors import InputError
from ffscope.live.answers import Token
from ffscope.models.inputs import token_ids
from ffscope.models.memory_model import MemoryModel
from ffscope.tokens import spelling, visible

_ID = re.compile(r"#(\d{1,9})", re.ASCII)


def choose(model: MemoryModel, asked: str, *, vocab: int) -> Token:
    """`#123` by its id; else the text that is one token as it stands, or else with a space in front."""
    match = _ID.fullmatch(asked)
    token = int(match[1]) if match else _by_text(model, asked)
    if token >= vocab:
        raise InputError(f"There is no token #{token}. This model has tokens #0 to #{vocab - 1}.")
    return Token(asked, token, spelling(model.tokenizer, token))


def _by_text(model: MemoryModel, asked: str) -> int:
    if model.tokenizer is None:
        raise InputError("This model came without a tokenizer. Name a token by its id, such as #123.")
    if not asked:
        raise InputError("Expected a token, found nothing. Write its text, or its id such as #123.")
    tries = [token_ids(model.tokenizer, text) for text in (asked, f" {asked}")]
    unknown = None if asked == model.tokenizer.unk_token else model.tokenizer.unk_token_id
    one = next((pieces[0] for pieces in tries if len(pieces) == 1 and pieces[0] != unknown), None)
    if one is None:
        pieces = " ".join(spelling(model.tokenizer, token) for token in tries[0][:20])
        raise InputError(
            f"{visible(asked)!r} is not one token, as it stands or with a space in front. Its pieces are: {pieces}. "
            "Choose one of them, or name a token by its id, such as #123."
        )
    return one
