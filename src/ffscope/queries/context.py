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
    """A paragraph: the sentences of it that the study has, in their order."""

    title: str | None
    document: int
    paragraph: int
    sentences: list[Sentence]


def context(where: Where, sentence: int) -> Context:
    """The paragraph in which a sentence stands."""
    with reading(where) as tables:
        tables.study.need("triggers")
        count = tables.study.manifest["corpus"]["sentences"]
        found = tables.row("SELECT document, paragraph FROM sentences WHERE sentence = ?", [min(sentence, 2**31 - 1)])
        if found is None:
            raise InputError(f"There is no sentence {sentence}. The study has sentences 0 to {count - 1:,}.")
        rows = tables.rows(
            "SELECT sentence, text FROM sentences WHERE document = ? AND paragraph = ? ORDER BY sentence",
            [found["document"], found["paragraph"]],
        )
        titles = tables.rows("SELECT title FROM documents WHERE document = ?", [found["document"]])
    return Context(titles[0][0] if titles else None, **found, sentences=[Sentence(*row) for row in rows])


def tokens_of(where: Where, sentences: list[int]) -> dict[int, list[int]]:
    """The tokens of some sentences."""
    with reading(where) as tables:
        query = "SELECT sentence, tokens FROM sentences WHERE sentence IN (SELECT unnest(?::INT[]))"
        return dict(tables.rows(query, [sentences]))
