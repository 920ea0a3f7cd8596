"""Patterns of memories, by whoever says so (the paper's table 1)."""

from dataclasses import dataclass

from ffscope.memory_name import Memory
from ffscope.patterns.pattern import Pattern
from ffscope.queries.annotations import read
from ffscope.queries.prefixes import Trigger, listed, told
from ffscope.queries.tables import Tables, Where, reading


@dataclass(frozen=True)
class Found:
    """A pattern of a memory, and who says so: the machine, a language model ("llm:…") or a person."""

    annotator: str
    kind: str
    description: str
    covers: list[int]
    p_value: float | None
    detection: float | None


@dataclass(frozen=True)
class PatternExample:
    """A memory with its patterns, and three of the prefixes that the first of them covers."""

    memory: str
    patterns: list[Found]
    triggers: list[Trigger]


def pattern_examples(where: Where, count: int = 1) -> list[PatternExample]:
    """So many memories of every layer, by lot, with the machine's patterns, each with three prefixes (the paper's table 1)."""
    with reading(where) as tables:
        tables.study.need("patterns")
        drawn = tables.rows(
            """
            SELECT layer, memory FROM (SELECT DISTINCT layer, memory FROM patterns WHERE annotator = 'machine')
            QUALIFY row_number() OVER (PARTITION BY layer ORDER BY md5(concat_ws(' ', ?, layer, memory))) <= ? ORDER BY ALL
            """,
            [tables.study.settings["seed"], count],
        )
        made = []
        for memory in (Memory(*row) for row in drawn):
            found = _by_programs(tables, memory, "machine")
            places = [row for row in listed(tables, "triggers", memory) if row[0] in found[0].covers[:3]]
            made.append(PatternExample(str(memory), found, told(tables, places)))
    return made


def patterns_of(tables: Tables, memory: Memory) -> list[Found] | None:
    """What anyone says that a memory's triggers share; None where nobody has looked."""
    people = read(tables.study, memory)
    if not people and not tables.study.has("patterns"):
        return None
    programs = _by_programs(tables, memory) if tables.study.has("patterns") else []
    return programs + [
        Found(one.annotator, said.kind, said.description, list(said.covers), None, None)
        for one in people
        for said in one.patterns
    ]


def _by_programs(tables: Tables, memory: Memory, annotator: str | None = None) -> list[Found]:
    rows = tables.rows(
        """
        SELECT annotator, kind, description, covers, p_value, detection FROM patterns
        WHERE layer = ? AND memory = ? AND annotator = coalesce(?, annotator)
        ORDER BY annotator != 'machine', annotator, pattern
        """,
        [*memory, annotator],
    )
    return [Found(*row) for row in rows]


def patterns_by_annotator(where: Where, memories: list[Memory]) -> dict[tuple[str, Memory], list[Pattern]]:
    """The patterns of patterns.parquet, by who found them and where."""
    with reading(where) as tables:
        rows = tables.rows(
            """
            SELECT annotator, layer, memory, kind, description, covers
            FROM patterns SEMI JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory) USING (layer, memory)
            """,
            [[memory.layer for memory in memories], [memory.memory for memory in memories]],
        )
    found: dict[tuple[str, Memory], list[Pattern]] = {}
    for annotator, layer, memory, kind, description, covers in rows:
        found.setdefault((annotator, Memory(layer, memory)), []).append(Pattern(kind, description, tuple(covers)))
    return found
