"""Paragraphs → sentences. Paragraphs are tokenized whole, so a sentence keeps the tokens it has in context."""

import logging
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from ffscope.panics import Unreadable, guarded

logger = logging.getLogger(__name__)

NO_TOKEN = -1
"""The next token at the end of a paragraph if the tokenizer has no EOS."""
_POINT = "@.@", "@,@"  # WikiText's decimal point (5.5) does not end a sentence; a comma has the same length
# After a capital letter, sentencex panics on non-ASCII white space before a full stop. A plain space has the same length.
_SPACE_BEFORE_STOP = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000](?=\\.)")
# Sentence ends where sentencex fails: punctuation and white space; in Chinese and Japanese punctuation alone.
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*\s+|[。！？][」』”’）]*\s*")
_UNSPLIT = "paragraphs that the sentence splitter could not read, split by punctuation alone"
_WHOLE = "paragraphs that the tokenizer could not read in parts, left whole"
_UNTOKENIZED = "paragraphs that the tokenizer could not read"
_GROUP_PARAGRAPHS, _GROUP_CHARACTERS = 64, 200_000  # tokenized in one call


class Sentence(NamedTuple):
    """A sentence: its text, its tokens, the offset in the text where each ends, and the token after the last."""

    text: str
    tokens: list[int]
    ends: list[int]
    next_token: int
    cut: bool  # whether tokens were dropped at max_tokens


class _Tokenized(NamedTuple):
    """A paragraph's tokens and the offsets where each begins and ends; `starts` is None if the tokenizer gives no offsets."""

    tokens: list[int]
    starts: list[int] | None
    ends: list[int]


def is_word_level(tokenizer: Any) -> bool:
    """Whether a tokenizer has one token per white-space-separated word."""
    from tokenizers.models import WordLevel

    backend = getattr(tokenizer, "backend_tokenizer", None)
    return isinstance(getattr(backend, "model", None), WordLevel)


class SentenceSplitter:
    """Tokenizes whole paragraphs and splits them into sentences; `skipped` counts the paragraphs that caused errors."""

    def __init__(self, tokenizer: Any, *, language: str, max_tokens: int) -> None:
        self.tokenizer, self.language, self.max_tokens = tokenizer, language, max_tokens
        eos = tokenizer.eos_token_id
        self.eos = NO_TOKEN if eos is None else eos
        self.skipped: Counter[str] = Counter()

    def sentences(self, paragraphs: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, list[Sentence]]]:
        """The sentences of each (label, text) pair, with its label."""
        for group in _groups(paragraphs):
            texts = [text for _, text in group]
            for (label, text), tokenized in zip(group, self._tokenized(texts), strict=True):
                yield label, [] if tokenized is None else self._split(text, tokenized)

    def _tokenized(self, texts: list[str]) -> Sequence[_Tokenized | None]:
        """The tokens of each text, or None if the tokenizer fails on it. A bad text does not affect the others."""
        try:
            with guarded():
                return self._tokenize(texts)
        except Unreadable:
            return [self._tokenized_alone(text) for text in texts]

    def _tokenized_alone(self, text: str) -> _Tokenized | None:
        try:
            with guarded():
                return self._tokenize([text])[0]
        except Unreadable as unreadable:
            self._count(_UNTOKENIZED, unreadable)
            return None

    def _tokenize(self, texts: list[str]) -> list[_Tokenized]:
        if not self.tokenizer.is_fast:
            return [_Tokenized(self.tokenizer.encode(text, add_special_tokens=False), None, []) for text in texts]
        encoded = self.tokenizer(
            texts,
            add_special_tokens=False,
            return_offsets_mapping=True,
            return_attention_mask=False,
            truncation=False,
            padding=False,
            verbose=False,
        )
        return [
            _Tokenized(ids, [start for start, _ in spans], [end for _, end in spans])
            for ids, spans in zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        ]

    def _split(self, text: str, tokenized: _Tokenized) -> list[Sentence]:
        try:
            return self._split_at(self._edges(text), text, *tokenized)
        except Unreadable as unreadable:  # the tokenizer failed on a part of the text
            self._count(_WHOLE, unreadable)
            return self._split_at([0, len(text)], text, *tokenized)

    def _split_at(
        self, edges: list[int], text: str, tokens: list[int], starts: list[int] | None, ends: list[int]
    ) -> list[Sentence]:
        first, sentences = 0, []
        for begin, end in pairwise(edges):
            part = text[begin:end]
            # A token belongs to the sentence of its first non-space character, so white space after a sentence belongs to the
            # next one.
            last = len(tokens) if end == edges[-1] else self._tokens_before(text, begin + len(part.rstrip()), starts)
            if last > first:
                sentences.append(self._sentence(part, begin, tokens, ends, first, last))
            first = max(first, last)
        return sentences

    def _edges(self, text: str) -> list[int]:
        """The offsets at which the sentences of a paragraph begin, and its end."""
        import sentencex

        prepared = text.replace(*_POINT)
        if not prepared.isascii():
            prepared = _SPACE_BEFORE_STOP.sub(" ", prepared)
        try:
            with guarded():
                parts = sentencex.segment(self.language, prepared)
                if "".join(parts) != prepared:
                    raise ValueError("the sentences do not add up to the paragraph")
        except Unreadable as unreadable:
            self._count(_UNSPLIT, unreadable)
            ends = {match.end() for match in _SENTENCE_END.finditer(prepared)}
            return [0, *sorted(ends | {len(prepared)})]
        return [0, *accumulate(map(len, parts))]

    def _count(self, what: str, unreadable: Unreadable) -> None:
        """Count a failure; the first of each kind is logged with its reason."""
        if not self.skipped[what]:
            logger.warning("The corpus has %s: %s.", what, unreadable)
        self.skipped[what] += 1

    def _tokens_before(self, text: str, offset: int, starts: list[int] | None) -> int:
        """How many tokens begin before an offset in the text."""
        if starts is not None:
            return bisect_left(starts, offset)
        # The tokenizer gives no offsets: tokenize the text up to there.
        with guarded():
            return len(self.tokenizer.encode(text[:offset], add_special_tokens=False))

    def _sentence(self, part: str, begin: int, tokens: list[int], ends: list[int], first: int, last: int) -> Sentence:
        end = min(last, first + self.max_tokens)
        text = part.strip()
        zero = begin + len(part) - len(part.lstrip())
        return Sentence(
            text=text,
            tokens=tokens[first:end],
            ends=[min(max(offset - zero, 0), len(text)) for offset in ends[first:end]],
            next_token=tokens[end] if end < len(tokens) else self.eos,
            cut=end < last,
        )


def _groups(paragraphs: Iterable[tuple[Any, str]]) -> Iterator[list[tuple[Any, str]]]:
    group: list[tuple[Any, str]] = []
    characters = 0
    for label, text in paragraphs:
        group.append((label, text))
        characters += len(text)
        if len(group) >= _GROUP_PARAGRAPHS or characters >= _GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group
