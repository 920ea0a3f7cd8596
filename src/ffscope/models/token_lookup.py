"""A token that a person names."""

from ffscope.errors import InputError
from ffscope.models.inputs import token_ids
from ffscope.models.memory_model import MemoryModel
from ffscope.tokens import Token, find_tokens, spelling, visible, vocabulary_of

_LISTED = 10  # tokens that share a spelling


def choose(model: MemoryModel, asked: str, *, vocab: int) -> Token:
    """`#123` by its id; a token by its spelling or its text as typed; or else the text that is one token with a space in front."""
    if not asked:
        raise InputError("Expected a token, found nothing. Write its text, or its id such as #123.")
    vocabulary = {} if model.tokenizer is None else vocabulary_of(model.tokenizer, vocab)
    ids = find_tokens(vocabulary, asked)
    if len(ids) > 1:
        listed = ", ".join(f"#{token}" for token in ids[:_LISTED]) + (" …" if len(ids) > _LISTED else "")
        raise InputError(f"{visible(asked)!r} is the spelling of {len(ids)} tokens: {listed}. Name one by its id.")
    token = ids[0] if ids else _by_pieces(model, asked)
    if token >= vocab:
        raise InputError(f"There is no token #{token}. This model has tokens #0 to #{vocab - 1}.")
    return Token(asked, token, spelling(model.tokenizer, token))


def _by_pieces(model: MemoryModel, asked: str) -> int:
    """A text that the tokenizer makes one token of, as it stands or with a space in front: it may, say, ignore case."""
    if model.tokenizer is None:
        raise InputError("This model came without a tokenizer. Name a token by its id, such as #123.")
    tries = [token_ids(model.tokenizer, text) for text in (asked, f" {asked}")]
    unknown = model.tokenizer.unk_token_id
    token = next((pieces[0] for pieces in tries if len(pieces) == 1 and pieces[0] != unknown), None)
    if token is None:
        pieces = " ".join(spelling(model.tokenizer, piece) for piece in tries[0][:20])
        raise InputError(
            f"{visible(asked)!r} is not one token, as it stands or with a space in front. Its pieces are: {pieces}. "
            "Choose one of them, or name a token by its id, such as #123."
        )
    return token
