"""Paragraphs → sentences that keep the tokens they have in running text."""

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

NO_TOKEN = -1
"""Stands for the next token where a paragraph ends and the tokenizer has no EOS."""
_POINT = "@.@", "@,@"  # as WikiText writes the point of 5.5, which ends no sentence; a comma is as long
_TOGETHER = (64, 200_000)  # paragraphs and characters that are tokenized in one call


class Sentence(NamedTuple):
    """A sentence: its text, its tokens, where each of them ends in the text, and the token that follows the last of them."""

    text: str
    tokens: list[int]
    ends: list[int]
    next_token: int
    cut: bool  # whether it had more tokens than are kept


def reads_words(tokenizer: Any) -> bool:
    """Whether a tokenizer takes whatever stands between spaces for one token."""
    from tokenizers.models import WordLevel

    backend = getattr(tokenizer, "backend_tokenizer", None)
    return isinstance(getattr(backend, "model", None), WordLevel)


class Cutter:
    """Tokenizes paragraphs whole and cuts them into sentences."""

    def __init__(self, tokenizer: Any, *, language: str, max_tokens: int) -> None:
        self.tokenizer, self.language, self.max_tokens = tokenizer, language, max_tokens
        eos = tokenizer.eos_token_id
        self.eos = NO_TOKEN if eos is None else eos

    def sentences(self, paragraphs: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, list[Sentence]]]:
        """The sentences of each paragraph; what came with it comes back with them."""
        for some in _grouped(paragraphs):
            for (label, text), (tokens, starts, ends) in zip(some, self._tokenized([t for _, t in some]), strict=True):
                yield label, self._cut(text, tokens, starts, ends)

    def _tokenized(self, texts: list[str]) -> Iterable[tuple[list[int], list[int] | None, list[int]]]:
        """Tokens, and where in the text each begins and ends."""
        if not self.tokenizer.is_fast:
            return ((self.tokenizer.encode(text, add_special_tokens=False), None, []) for text in texts)
        made = self.tokenizer(
            texts,
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            truncation=False,
            padding=False,
            verbose=False,
        )
        return (
            (ids, [start for start, _ in spans], [end for _, end in spans])
            for ids, spans in zip(made["input_ids"], made["offset_mapping"], strict=True)
        )

    def _cut(self, text: str, tokens: list[int], starts: list[int] | None, ends: list[int]) -> list[Sentence]:
        import sentencex

        parts = sentencex.segment(self.language, text.replace(*_POINT))
        edges = [0, *accumulate(len(part) for part in parts)]
        first, found = 0, []
        for begin, end in pairwise(edges):
            part = text[begin:end]
            # A token belongs to the sentence of its first character that is not white space. Behind a sentence's last such
            # character, that is the next sentence's.
            last = len(tokens) if end == edges[-1] else self._before(text, begin + len(part.rstrip()), starts)
            if last > first:
                found.append(self._sentence(part, begin, tokens, ends, first, last))
            first = max(first, last)
        return found

    def _before(self, text: str, place: int, starts: list[int] | None) -> int:
        """How many tokens begin before a place in the text."""
        if starts is not None:
            return bisect_left(starts, place)
        # A tokenizer that does not say where its tokens are: as many as the text up to there has.
        return len(self.tokenizer.encode(text[:place], add_special_tokens=False))

    def _sentence(self, part: str, begin: int, tokens: list[int], ends: list[int], first: int, last: int) -> Sentence:
        kept = min(last, first + self.max_tokens)
        text = part.strip()
        zero = begin + len(part) - len(part.lstrip())
        return Sentence(
            text=text,
            tokens=tokens[first:kept],
            ends=[min(max(end - zero, 0), len(text)) for end in ends[first:kept]],
            next_token=tokens[kept] if kept < len(tokens) else self.eos,
            cut=kept < last,
        )


class Seen:
    """The sentences met so far, kept by their digests in a temporary database, so that memory does not grow with them."""

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA cache_size = -16384")  # in KiB; more goes to the disk
        self._database.execute("CREATE TABLE seen (digest BLOB PRIMARY KEY) WITHOUT ROWID")
        self._database.execute("BEGIN")

    def new(self, text: str) -> bool:
        """Whether this text was not met before; from now on it was."""
        digest = blake2b(text.encode(), digest_size=16).digest()
        return self._database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (digest,)).rowcount == 1

    def close(self) -> None:
        self._database.close()


def _grouped(paragraphs: Iterable[tuple[Any, str]]) -> Iterator[list[tuple[Any, str]]]:
    some: list[tuple[Any, str]] = []
    characters = 0
    for label, text in paragraphs:
        some.append((label, text))
        characters += len(text)
        if len(some) >= _TOGETHER[0] or characters >= _TOGETHER[1]:
            yield some
            some, characters = [], 0
    if some:
        yield some
