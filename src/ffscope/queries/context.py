"""The paragraph around a sentence."""

from dataclasses import dataclass

from ffscope.errors import InputError
from ffscope.queries.tables import Where, reading


@dataclass(frozen=True)
class Sentence:
    """A sentence of the corpus."""

    sentence: int
    text: str


@dataclass(frozen=True)
class Context:
    """A paragraph: those of its sentences that the study contains, in order."""

    title: str | None
    document: int
    paragraph: int
    sentences: list[Sentence]


def context(where: Where, sentence: int) -> Context:
    """The paragraph that contains a sentence."""
    with reading(where) as tables:
        tables.study.need("triggers")
        count = tables.study.manifest["corpus"]["sentences"]
        location = tables.row(
            "SELECT document, paragraph FROM sentences WHERE sentence = ?", [min(sentence, 2**31 - 1)]
        )
        if location is None:
            raise InputError(f"There is no sentence {sentence}. The study has sentences 0 to {count - 1:,}.")
        rows = tables.rows(
            "SELECT sentence, text FROM sentences WHERE document = ? AND paragraph = ? ORDER BY sentence",
            [location["document"], location["paragraph"]],
        )
        titles = tables.rows("SELECT title FROM documents WHERE document = ?", [location["document"]])
    return Context(titles[0][0] if titles else None, **location, sentences=[Sentence(*row) for row in rows])


def tokens_of(where: Where, sentences: list[int]) -> dict[int, list[int]]:
    """The tokens of some sentences."""
    with reading(where) as tables:
        query = "SELECT sentence, tokens FROM sentences WHERE sentence IN (SELECT unnest(?::INT[]))"
        return dict(tables.rows(query, [sentences]))
