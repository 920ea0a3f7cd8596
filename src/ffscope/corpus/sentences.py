"""Paragraphs → sentences. Paragraphs are tokenized whole, so a sentence keeps the tokens it has in context."""

import re
from collections.abc import Iterator
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from ffscope.axes import Array
from ffscope.corpus.tokenizing import TextTokenizer, Tokenized, join
from ffscope.panics import Unreadable, guarded

DIGEST = 16
"""Bytes of a sentence's digest."""
_POINT = "@.@", "@,@"  # WikiText's decimal point (5.5) does not end a sentence; a comma has the same length
# After a capital letter, sentencex panics on non-ASCII white space before a full stop. A plain space has the same length.
_SPACE_BEFORE_STOP = re.compile("[\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000](?=\\.)")
# Sentence ends where sentencex fails: punctuation and white space; in Chinese and Japanese punctuation alone.
_SENTENCE_END = re.compile(r"[.!?…][\"'”’»)\]]*\s+|[。！？][」』”’）]*\s*")
_UNSPLIT = "paragraphs that the sentence splitter could not read, split by punctuation alone"
_WHOLE = "paragraphs that the tokenizer could not read in parts, left whole"
_UNTOKENIZED = "paragraphs that the tokenizer could not read"


class Failure(NamedTuple):
    """A paragraph, by its index, that caused an error: what was done about it, and the reason."""

    paragraph: int
    what: str
    reason: str


class Sentences(NamedTuple):
    """The sentences of some paragraphs, as columns. Tokens and ends are concatenated."""

    paragraphs: Array  # index of each sentence's paragraph
    texts: list[str]
    digests: bytes  # of the texts, DIGEST bytes each
    lengths: Array  # in tokens
    tokens: Array
    ends: Array  # the offset in the text where each token ends; empty if the tokenizer gives no offsets
    next_tokens: Array
    cut: Array  # whether tokens were dropped at max_tokens
    failures: list[Failure]


class _Part(NamedTuple):
    """A stretch of a paragraph that may become a sentence."""

    paragraph: int
    text: str  # without surrounding white space
    begin: int  # offset of that text in the paragraph
    limit: int  # tokens that begin before this offset belong to it or an earlier part; -1 in the last part: all


class SentenceSplitter:
    """Tokenizes whole paragraphs and splits them into sentences."""

    def __init__(self, tokenizer: TextTokenizer, *, language: str, max_tokens: int) -> None:
        self.tokenizer, self.language, self.max_tokens = tokenizer, language, max_tokens

    def split(self, texts: list[str]) -> Sentences:
        """The sentences of some paragraphs. A paragraph that causes an error does not affect the others."""
        failures: list[Failure] = []
        tokenized = self._tokenize(texts, failures)
        token_ends = np.cumsum(tokenized.counts)
        parts: list[_Part] = []
        limits: list[int] = []  # tokens before the end of each part, if the tokenizer gives no offsets
        for paragraph in np.flatnonzero(tokenized.counts).tolist():
            text = texts[paragraph]
            new = list(_parts(paragraph, text, self._edges(paragraph, text, failures)))
            if tokenized.starts is None:
                end = int(token_ends[paragraph])
                try:
                    counts = self._tokens_before(new, text, end - int(tokenized.counts[paragraph]), end)
                except Unreadable as unreadable:  # the tokenizer failed on a part of the text
                    failures.append(Failure(paragraph, _WHOLE, str(unreadable)))
                    new, counts = list(_parts(paragraph, text, [0, len(text)])), [end]
                limits += counts
            parts += new
        lasts = np.array(limits, np.int64) if tokenized.starts is None else _lasts(parts, texts, tokenized)
        return self._sentences(parts, lasts, tokenized, failures)

    def _tokenize(self, texts: list[str], failures: list[Failure]) -> Tokenized:
        try:
            with guarded():
                return self.tokenizer.tokenize(texts)
        except Unreadable:
            return join([self._tokenize_alone(number, text, failures) for number, text in enumerate(texts)])

    def _tokenize_alone(self, number: int, text: str, failures: list[Failure]) -> Tokenized:
        try:
            with guarded():
                return self.tokenizer.tokenize([text])
        except Unreadable as unreadable:
            failures.append(Failure(number, _UNTOKENIZED, str(unreadable)))
            none = np.empty(0, np.int32)
            return Tokenized(np.zeros(1, np.int64), none, none if self.tokenizer.gives_offsets else None, none)

    def _edges(self, paragraph: int, text: str, failures: list[Failure]) -> list[int]:
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
            failures.append(Failure(paragraph, _UNSPLIT, str(unreadable)))
            ends = {match.end() for match in _SENTENCE_END.finditer(prepared)}
            return [0, *sorted(ends | {len(prepared)})]
        return [0, *accumulate(map(len, parts))]

    def _tokens_before(self, parts: list[_Part], text: str, first: int, end: int) -> list[int]:
        """The number of tokens before the end of each part, for a tokenizer without offsets: tokenize the text up to there."""
        with guarded():
            return [end if part.limit < 0 else first + self.tokenizer.count(text[: part.limit]) for part in parts]

    def _sentences(self, parts: list[_Part], lasts: Array, tokenized: Tokenized, failures: list[Failure]) -> Sentences:
        """The parts that have tokens, as columns; `lasts` has the number of tokens before the end of each."""
        ends = np.maximum.accumulate(lasts)
        firsts = np.concatenate([[0], ends[:-1]])[: len(ends)]
        kept = np.flatnonzero(lasts > firsts)
        parts, firsts, lasts = [parts[number] for number in kept.tolist()], firsts[kept], lasts[kept]
        lengths = np.minimum(lasts - firsts, self.max_tokens)
        paragraphs = np.fromiter((part.paragraph for part in parts), np.int64, len(parts))
        texts = [part.text for part in parts]
        # Every token of every sentence, by its index among the tokens.
        at = np.repeat(firsts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
        return Sentences(
            paragraphs=paragraphs,
            texts=texts,
            digests=b"".join(blake2b(text.encode(), digest_size=DIGEST).digest() for text in texts),
            lengths=lengths,
            tokens=tokenized.tokens[at],
            ends=np.empty(0, np.int32) if tokenized.starts is None else _token_ends(parts, lengths, tokenized.ends[at]),
            next_tokens=self._next_tokens(firsts + lengths, paragraphs, tokenized),
            cut=lasts - firsts > lengths,
            failures=failures,
        )

    def _next_tokens(self, at: Array, paragraphs: Array, tokenized: Tokenized) -> Array:
        """The token after each sentence: in its paragraph, or EOS."""
        inside = at < np.cumsum(tokenized.counts)[paragraphs]
        next_tokens = np.full(len(at), self.tokenizer.eos, np.int32)
        next_tokens[inside] = tokenized.tokens[at[inside]]
        return next_tokens


def _parts(paragraph: int, text: str, edges: list[int]) -> Iterator[_Part]:
    for begin, end in pairwise(edges):
        part = text[begin:end]
        from_first = part.lstrip()
        stripped = from_first.rstrip()
        # A token belongs to the sentence of its first non-space character, so white space after a sentence belongs to the next.
        limit = begin + len(part.rstrip()) if end < edges[-1] else -1
        yield _Part(paragraph, stripped, begin + len(part) - len(from_first), limit)


def _lasts(parts: list[_Part], texts: list[str], tokenized: Tokenized) -> Array:
    """The number of tokens before the end of each part, from the offsets at which tokens begin."""
    assert tokenized.starts is not None
    lengths = np.fromiter(map(len, texts), np.int64, len(texts)) + 1
    offsets = np.cumsum(lengths) - lengths  # of each paragraph, as if all were one text
    starts = np.maximum.accumulate(tokenized.starts + np.repeat(offsets, tokenized.counts))
    paragraphs = np.fromiter((part.paragraph for part in parts), np.int64, len(parts))
    limits = np.fromiter((part.limit for part in parts), np.int64, len(parts))
    before = np.searchsorted(starts, limits + offsets[paragraphs], side="left")
    return np.where(limits < 0, np.cumsum(tokenized.counts)[paragraphs], before)


def _token_ends(parts: list[_Part], lengths: Array, ends: Array) -> Array:
    """The offset in its sentence where each token ends, at most the sentence's length."""
    begins = np.fromiter((part.begin for part in parts), np.int64, len(parts))
    sizes = np.fromiter((len(part.text) for part in parts), np.int64, len(parts))
    return np.clip(ends - np.repeat(begins, lengths), 0, np.repeat(sizes, lengths)).astype(np.int32)
