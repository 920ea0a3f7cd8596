"""Paragraphs → sentences that keep the tokens they have in running text."""

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
"""Stands for the next token where a paragraph ends and the tokenizer has no EOS."""
_POINT = "@.@", "@,@"  # as WikiText writes the point of 5.5, which ends no sentence; a comma is as long
# White space outside ASCII before a full stop: behind a capital letter sentencex panics at it. A space is as long, and read well.
_SPACE_BEFORE_STOP = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000](?=\\.)")
# Where a sentence ends if sentencex cannot say: behind punctuation and white space; in Chinese and Japanese without the latter.
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*\s+|[。！？][」』”’）]*\s*")
_UNSPLIT = "paragraphs that the sentence splitter could not read, split by punctuation alone"
_WHOLE = "paragraphs that the tokenizer could not read in parts, left whole"
_UNTOKENIZED = "paragraphs that the tokenizer could not read"
_TOGETHER = (64, 200_000)  # paragraphs and characters that are tokenized in one call


class Sentence(NamedTuple):
    """A sentence: its text, its tokens, where each of them ends in the text, and the token that follows the last of them."""

    text: str
    tokens: list[int]
    ends: list[int]
    next_token: int
    cut: bool  # whether it had more tokens than are kept


class _Tokenized(NamedTuple):
    """A paragraph's tokens, and where in its text each begins and ends; None where the tokenizer does not say."""

    tokens: list[int]
    starts: list[int] | None
    ends: list[int]


def reads_words(tokenizer: Any) -> bool:
    """Whether a tokenizer takes whatever stands between spaces for one token."""
    from tokenizers.models import WordLevel

    backend = getattr(tokenizer, "backend_tokenizer", None)
    return isinstance(getattr(backend, "model", None), WordLevel)


class Cutter:
    """Tokenizes paragraphs whole and cuts them into sentences; `skipped` counts those that it could not read as it should."""

    def __init__(self, tokenizer: Any, *, language: str, max_tokens: int) -> None:
        self.tokenizer, self.language, self.max_tokens = tokenizer, language, max_tokens
        eos = tokenizer.eos_token_id
        self.eos = NO_TOKEN if eos is None else eos
        self.skipped: Counter[str] = Counter()

    def sentences(self, paragraphs: Iterable[tuple[Any, str]]) -> Iterator[tuple[Any, list[Sentence]]]:
        """The sentences of each paragraph; what came with it comes back with them."""
        for group in _grouped(paragraphs):
            texts = [text for _, text in group]
            for (label, text), tokenized in zip(group, self._tokenized(texts), strict=True):
                yield label, [] if tokenized is None else self._cut(text, tokenized)

    def _tokenized(self, texts: list[str]) -> Sequence[_Tokenized | None]:
        """The tokens of each text; None for one that the tokenizer cannot read. One bad text does not cost those beside it."""
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

    def _cut(self, text: str, tokenized: _Tokenized) -> list[Sentence]:
        try:
            return self._cut_at(self._edges(text), text, *tokenized)
        except Unreadable as unreadable:  # the tokenizer, of a part of what it could read as a whole
            self._count(_WHOLE, unreadable)
            return self._cut_at([0, len(text)], text, *tokenized)

    def _cut_at(
        self, edges: list[int], text: str, tokens: list[int], starts: list[int] | None, ends: list[int]
    ) -> list[Sentence]:
        first, sentences = 0, []
        for begin, end in pairwise(edges):
            part = text[begin:end]
            # A token belongs to the sentence of its first character that is not white space. Behind a sentence's last such
            # character, that is the next sentence's.
            last = len(tokens) if end == edges[-1] else self._before(text, begin + len(part.rstrip()), starts)
            if last > first:
                sentences.append(self._sentence(part, begin, tokens, ends, first, last))
            first = max(first, last)
        return sentences

    def _edges(self, text: str) -> list[int]:
        """Where the sentences of a paragraph begin and end."""
        import sentencex

        spelt = text.replace(*_POINT)
        if not spelt.isascii():
            spelt = _SPACE_BEFORE_STOP.sub(" ", spelt)
        try:
            with guarded():
                parts = sentencex.segment(self.language, spelt)
                if "".join(parts) != spelt:
                    raise ValueError("its sentences do not add up to the paragraph")
        except Unreadable as unreadable:
            self._count(_UNSPLIT, unreadable)
            ends = {match.end() for match in _SENTENCE_END.finditer(spelt)}
            return [0, *sorted(ends | {len(spelt)})]
        return [0, *accumulate(map(len, parts))]

    def _count(self, what: str, unreadable: Unreadable) -> None:
        """Count a paragraph; the first of a kind is told with its reason."""
        if not self.skipped[what]:
            logger.warning("Among what is read are %s: %s.", what, unreadable)
        self.skipped[what] += 1

    def _before(self, text: str, place: int, starts: list[int] | None) -> int:
        """How many tokens begin before a place in the text."""
        if starts is not None:
            return bisect_left(starts, place)
        # A tokenizer that does not say where its tokens are: as many as the text up to there has.
        with guarded():
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
