"""Look up a token by what a user typed."""

from ffscope.errors import InputError
from ffscope.models.inputs import token_ids
from ffscope.models.memory_model import MemoryModel
from ffscope.tokens import Token, find_tokens, spelling, visible, vocabulary_of

_LISTED = 10  # tokens that share a spelling


def find_token(model: MemoryModel, text: str, *, vocab: int) -> Token:
    """The token with an id (`#123`), with a spelling or text as typed, or else with that text after a space."""
    if not text:
        raise InputError("Expected a token, found nothing. Write its text, or its id such as #123.")
    vocabulary = {} if model.tokenizer is None else vocabulary_of(model.tokenizer, vocab)
    ids = find_tokens(vocabulary, text)
    if len(ids) > 1:
        listed = ", ".join(f"#{token}" for token in ids[:_LISTED]) + (" …" if len(ids) > _LISTED else "")
        raise InputError(f"{visible(text)!r} is the spelling of {len(ids)} tokens: {listed}. Name one by its id.")
    token = ids[0] if ids else _tokenize(model, text)
    if token >= vocab:
        raise InputError(f"There is no token #{token}. This model has tokens #0 to #{vocab - 1}.")
    return Token(text, token, spelling(model.tokenizer, token))


def _tokenize(model: MemoryModel, text: str) -> int:
    """The single token of a text, as typed or after a space; its spelling may differ, for example in case."""
    if model.tokenizer is None:
        raise InputError("This model has no tokenizer. Name a token by its id, such as #123.")
    tries = [token_ids(model.tokenizer, variant) for variant in (text, f" {text}")]
    unknown = model.tokenizer.unk_token_id
    token = next((pieces[0] for pieces in tries if len(pieces) == 1 and pieces[0] != unknown), None)
    if token is None:
        pieces = " ".join(spelling(model.tokenizer, piece) for piece in tries[0][:20])
        raise InputError(
            f"{visible(text)!r} is not one token, either as typed or after a space. Its tokens are: {pieces}. "
            "Choose one of them, or name a token by its id, such as #123."
        )
    return token
