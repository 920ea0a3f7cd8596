"""Texts → tokens and their offsets, as flat arrays."""

from collections.abc import Iterable
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ffscope.axes import Array

NO_TOKEN = -1
"""The next token at the end of a paragraph if the tokenizer has no EOS."""


class Tokenized(NamedTuple):
    """The tokens of some texts, concatenated, and the offsets in its text where each begins and ends."""

    counts: Array  # tokens of each text
    tokens: Array
    starts: Array | None  # None if the tokenizer gives no offsets
    ends: Array


class TextTokenizer:
    """A model's tokenizer, without special tokens, truncation or padding. It can be sent to other processes."""

    def __init__(self, tokenizer: Any) -> None:
        eos = tokenizer.eos_token_id
        self.eos: int = NO_TOKEN if eos is None else eos
        self.is_word_level = is_word_level(tokenizer)
        self.unknown: int | None = getattr(tokenizer, "unk_token_id", None)
        self._compiled = _compiled(tokenizer)
        self._splits_special = bool(getattr(tokenizer, "split_special_tokens", False))
        self._tokenizer: Any = tokenizer if self._compiled is None else None
        self.gives_offsets: bool = self._compiled is not None or tokenizer.is_fast
        self._prepare()

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()

    def _prepare(self) -> None:
        """Set what transformers would set at every call; a pickle does not have all of it."""
        if self._compiled is not None:
            self._compiled.no_truncation()
            self._compiled.no_padding()
            self._compiled.encode_special_tokens = self._splits_special

    def tokenize(self, texts: list[str]) -> Tokenized:
        """The tokens of some texts. Compiled tokenizers read them in several threads."""
        if self._compiled is not None:
            encodings = self._compiled.encode_batch(texts, add_special_tokens=False)
            return _flat([encoding.ids for encoding in encodings], [encoding.offsets for encoding in encodings])
        if not self.gives_offsets:
            return _flat([self._tokenizer.encode(text, add_special_tokens=False) for text in texts], None)
        encoded = self._tokenizer(
            texts,
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            truncation=False,
            padding=False,
            verbose=False,
        )
        return _flat(encoded["input_ids"], encoded["offset_mapping"])

    def count(self, text: str) -> int:
        """The number of tokens of a text."""
        return int(self.tokenize([text]).counts[0])


def join(parts: list[Tokenized]) -> Tokenized:
    """Several results as one."""
    counts, tokens, starts, ends = zip(*parts, strict=True)
    flat_starts = None if starts[0] is None else np.concatenate(starts)
    return Tokenized(np.concatenate(counts), np.concatenate(tokens), flat_starts, np.concatenate(ends))


def is_word_level(tokenizer: Any) -> bool:
    """Whether a tokenizer has one token per white-space-separated word."""
    from tokenizers.models import WordLevel

    backend = getattr(tokenizer, "backend_tokenizer", None)
    return isinstance(getattr(backend, "model", None), WordLevel)


def _compiled(tokenizer: Any) -> Any:
    """The compiled tokenizer, if the class of `tokenizer` adds nothing to it.

    Called directly it is faster, and a process can load it without transformers.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    methods = [getattr(type(tokenizer), name, None) for name in ("__call__", "_encode_plus")]
    # The base classes' own methods; those of one model's tokenizer are in its own module.
    plain = all(getattr(method, "__module__", "").startswith("transformers.tokenization_utils") for method in methods)
    return backend if plain else None


def _flat(ids: list[list[int]], spans: list[list[tuple[int, int]]] | None) -> Tokenized:
    counts = np.fromiter(map(len, ids), np.int64, len(ids))
    total = int(counts.sum())
    tokens = _integers(chain.from_iterable(ids), total)
    if spans is None:
        return Tokenized(counts, tokens, None, np.empty(0, np.int32))
    edges = _integers(chain.from_iterable(chain.from_iterable(spans)), 2 * total).reshape(-1, 2)
    return Tokenized(counts, tokens, edges[:, 0], edges[:, 1])


def _integers(numbers: Iterable[int], count: int) -> Array:
    return np.fromiter(numbers, np.int32, count)
