"""The paragraphs of a corpus and of its held-out text, in groups of growing size."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ffscope.corpus.documents import Corpus
from ffscope.options.corpus import CorpusOptions

_HELD_OUT_EVERY = 20  # every twentieth document is held out
# Groups start small, since a short search needs little text, and grow to a size at which the cost of a call does not matter.
_FIRST_GROUP, _GROUP = 2**14, 2**19  # characters
_GROUP_PARAGRAPHS = 4096


class Position(NamedTuple):
    """A place in the text: the source (0 is the corpus, 1 the held-out text) and the number of paragraphs of it before that."""

    source: int = 0
    paragraphs: int = 0


class Paragraph(NamedTuple):
    """Where a paragraph comes from."""

    source: int
    document: int  # number in its source
    place: int  # position in its document
    held_out: bool
    title: str | None
    topic: str | None
    end: Position  # the position after it
    skipped: dict[str, int]  # what was skipped in its source up to here


Group = tuple[list[Paragraph], list[str]]
"""Paragraphs of one source, and their texts."""


class Paragraphs:
    """The paragraphs to read. Reading ends when there are enough sentences to search and a document is held out.

    `enough` says whether there are enough searched sentences (False) or held-out sentences (True). It is called ahead of what has
    been added to the study, so some paragraphs that are not needed may follow; the caller drops them.
    """

    def __init__(self, options: CorpusOptions, corpora: Sequence[Corpus], enough: Callable[[bool], bool]) -> None:
        self._options, self._corpora, self._enough = options, corpora, enough

    def groups(self, start: Position) -> Iterator[Group]:
        """Groups of paragraphs from a position on."""
        size = _FIRST_GROUP
        for source in range(start.source, len(self._corpora)):
            first = start.paragraphs if source == start.source else 0
            paragraphs: list[Paragraph] = []
            texts: list[str] = []
            characters = 0
            for paragraph, text in self._of_source(source):
                if paragraph.end.paragraphs <= first:
                    continue
                paragraphs.append(paragraph)
                texts.append(text)
                characters += len(text)
                if characters >= size or len(texts) >= _GROUP_PARAGRAPHS:
                    yield paragraphs, texts
                    paragraphs, texts, characters, size = [], [], 0, min(2 * size, _GROUP)
            if texts:
                yield paragraphs, texts

    def _of_source(self, source: int) -> Iterator[tuple[Paragraph, str]]:
        corpus, every_twentieth = self._corpora[source], self._options.held_out is None
        any_held_out, count = False, 0
        skipped: dict[str, int] = {}
        for number, document in enumerate(corpus):
            held_out = source == 1 or (every_twentieth and number % _HELD_OUT_EVERY == _HELD_OUT_EVERY - 1)
            if self._enough(source == 1):
                if any_held_out or not every_twentieth:
                    return
                if not held_out:
                    continue
            empty = True
            for place, text in enumerate(document.paragraphs):
                empty, any_held_out, count = False, any_held_out or held_out, count + 1
                if corpus.skipped.total() != sum(skipped.values()):
                    skipped = dict(corpus.skipped)
                end = Position(source, count)
                yield Paragraph(source, number, place, held_out, document.title, document.topic, end, skipped), text
                if self._enough(held_out):
                    break
            corpus.skipped["documents without text"] += empty
