"""Triggers and other prefixes: their places in the corpus, and their text."""

from dataclasses import dataclass
from typing import Any

from ffscope.memory_name import Memory
from ffscope.queries.tables import Tables, Where, reading, spellings

Place = tuple[int, int]  # sentence and position of a prefix


@dataclass(frozen=True)
class Trigger:
    """One trigger of a memory: its coefficient, its place, and its text, split before and after the trigger token.

    `tokens` is the whole sentence token by token, including what follows the trigger.
    """

    rank: int
    coefficient: float
    sentence: int
    position: int
    before: str
    token: str
    next_token: str
    title: str | None
    tokens: list[str]
    next_id: int  # -1 where nothing follows


def first_triggers(where: Where, memories: list[Memory], *, count: int) -> dict[Memory, list[Trigger]]:
    """The top `count` triggers of memories, with their text."""
    with reading(where) as tables:
        rows = _first(tables, memories, count)
        texts = with_text(tables, [row[2:] for row in rows])
    triggers: dict[Memory, list[Trigger]] = {memory: [] for memory in memories}
    for row, trigger in zip(rows, texts, strict=True):
        triggers[Memory(*row[:2])].append(trigger)
    return triggers


def trigger_places(where: Where, memories: list[Memory], *, count: int) -> dict[Memory, dict[int, Place]]:
    """The places of the top `count` triggers of memories, by rank."""
    with reading(where) as tables:
        rows = _first(tables, memories, count)
    places: dict[Memory, dict[int, Place]] = {memory: {} for memory in memories}
    for layer, memory, rank, _, sentence, position in rows:
        places[Memory(layer, memory)][rank] = (sentence, position)
    return places


def prefixes_at(where: Where, places: list[Place]) -> list[Trigger]:
    """Arbitrary prefixes of the corpus with their text, numbered from 1 and with coefficient 0."""
    with reading(where) as tables:
        return with_text(tables, [(number + 1, 0.0, *place) for number, place in enumerate(places)])


def _first(tables: Tables, memories: list[Memory], count: int) -> list[tuple[Any, ...]]:
    return tables.rows(
        """
        SELECT layer, memory, rank, coefficient, sentence, position
        FROM triggers SEMI JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory) USING (layer, memory)
        WHERE rank <= ? ORDER BY layer, memory, rank
        """,
        [[memory.layer for memory in memories], [memory.memory for memory in memories], count],
    )


def trigger_rows(tables: Tables, table: str, memory: Memory) -> list[tuple[Any, ...]]:
    """Rank, coefficient, sentence and position of a memory's triggers."""
    query = f"SELECT rank, coefficient, sentence, position FROM {table} WHERE layer = ? AND memory = ? ORDER BY rank"
    return tables.rows(query, memory)


def with_text(tables: Tables, places: list[tuple[Any, ...]]) -> list[Trigger]:
    """Triggers for rows of rank, coefficient, sentence and position, with their text."""
    if not places:
        return []
    rows = tables.rows(
        """
        SELECT s.sentence, s.text, s.tokens, s.ends, s.next_token, d.title
        FROM sentences s LEFT JOIN documents d USING (document) WHERE s.sentence IN (SELECT unnest(?::INT[]))
        """,
        [sorted({place[2] for place in places})],
    )
    sentences = {row[0]: row[1:] for row in rows}
    spelt = spellings(tables, (token for row in sentences.values() for token in (*row[1], row[3])))
    return [_trigger(place, sentences[place[2]], spelt) for place in places]


def _trigger(place: tuple[Any, ...], sentence: tuple[Any, ...], spelt: dict[int, str]) -> Trigger:
    rank, coefficient, number, position = place
    text, tokens, ends, after, title = sentence
    following = tokens[position + 1] if position + 1 < len(tokens) else after
    # If the tokenizer gives no offsets, the spellings of the tokens are used.
    pieces = _cut(text, ends) if ends else [spelt.get(token, f"#{token}") for token in tokens]
    token = pieces[position]
    return Trigger(
        rank=rank,
        coefficient=coefficient,
        sentence=number,
        position=position,
        before="".join(pieces[:position]),
        # Part of a character has no text.
        token=token if token.strip() else spelt.get(tokens[position], token),
        next_token=spelt.get(following, "") if following >= 0 else "",
        title=title,
        tokens=pieces,
        next_id=following,
    )


def _cut(text: str, ends: list[int]) -> list[str]:
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
