"""A search index of all memories that is small enough to send with a page: patterns, promoted tokens, triggers' text."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ffscope.memory_name import Memory
from ffscope.queries.tables import LONGEST, Tables, spellings

_TOKENS, _TRIGGERS = 10, 3  # of each memory
_LONGEST_SENTENCE = 1000  # characters


@dataclass(frozen=True)
class SearchIndex:
    """Every searched memory, in order, with what it can be found by. Tokens and sentences are stored once each.

    `patterns`: the machine's first pattern of each memory. `promotes`: the value's top tokens, as indices into `tokens`.
    `triggers`: the top triggers as pairs of an index into `sentences` and the length of the prefix, in UTF-16 units, as JavaScript
    counts. The lists of a stage that has not been run are empty.
    """

    memories: list[str]
    patterns: list[str | None]
    promotes: list[list[int]]
    tokens: list[str]
    triggers: list[list[tuple[int, int]]]
    sentences: list[str]


def search_index(tables: Tables) -> SearchIndex:
    """The index of a study."""
    rows = tables.rows("SELECT layer, memory FROM memories ORDER BY layer, memory")
    promotes, tokens = _promotes(tables)
    triggers, sentences = _triggers(tables)
    return SearchIndex(
        memories=[str(Memory(*row)) for row in rows],
        patterns=[text for (text,) in tables.rows(_PATTERNS)] if tables.study.has("patterns") else [],
        promotes=promotes,
        tokens=tokens,
        triggers=[triggers.get(row, []) for row in rows],
        sentences=sentences,
    )


_PATTERNS = f"""
    SELECT left(description, {LONGEST}) FROM memories LEFT JOIN labelled USING (layer, memory) ORDER BY layer, memory
"""
_PROMOTES = f"""
    SELECT coalesce(top_tokens[:{_TOKENS}], []) FROM memories LEFT JOIN values USING (layer, memory) ORDER BY layer, memory
"""
# If the tokenizer gives no offsets, a trigger is assumed to contain its whole sentence.
_TOP_TRIGGERS = f"""
    SELECT layer, memory, sentence, coalesce(ends[position + 1], length(text))
    FROM triggers JOIN sentences USING (sentence) WHERE rank <= {_TRIGGERS} ORDER BY layer, memory, rank
"""
_SENTENCES = f"""
    SELECT sentence, left(text, {_LONGEST_SENTENCE}) FROM sentences
    WHERE sentence IN (SELECT sentence FROM triggers WHERE rank <= {_TRIGGERS}) ORDER BY sentence
"""


def _promotes(tables: Tables) -> tuple[list[list[int]], list[str]]:
    if not tables.study.has("values"):
        return [], []
    rows = [row for (row,) in tables.rows(_PROMOTES)]
    tokens = sorted({token for row in rows for token in row})
    places, texts = _places(tokens), spellings(tables, tokens)
    return [[places[token] for token in row] for row in rows], [texts.get(token, f"#{token}") for token in tokens]


def _triggers(tables: Tables) -> tuple[dict[tuple[int, int], list[tuple[int, int]]], list[str]]:
    """The top triggers by memory, and their sentences."""
    sentences = dict(tables.rows(_SENTENCES))
    places = _places(sentences)
    triggers: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for layer, memory, sentence, reach in tables.rows(_TOP_TRIGGERS):
        end = _utf16_length(sentences[sentence][:reach])
        triggers.setdefault((layer, memory), []).append((places[sentence], end))
    return triggers, list(sentences.values())


def _places(keys: Iterable[Any]) -> dict[Any, int]:
    return {key: place for place, key in enumerate(keys)}


def _utf16_length(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)
