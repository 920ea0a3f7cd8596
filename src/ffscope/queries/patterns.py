"""Patterns of memories, by all annotators (the paper's table 1)."""

from dataclasses import dataclass

from ffscope.memory_name import Memory
from ffscope.patterns.pattern import Pattern
from ffscope.queries.annotations import read
from ffscope.queries.prefixes import Trigger, trigger_rows, with_text
from ffscope.queries.tables import Tables, Where, reading


@dataclass(frozen=True)
class AnnotatedPattern:
    """A pattern of a memory with its annotator: the machine, a language model ("llm:…") or a person."""

    annotator: str
    kind: str
    description: str
    covers: list[int]
    p_value: float | None
    detection: float | None


@dataclass(frozen=True)
class PatternExample:
    """A memory with its patterns, and three of the prefixes that its first pattern covers."""

    memory: str
    patterns: list[AnnotatedPattern]
    triggers: list[Trigger]


def pattern_examples(where: Where, count: int = 1) -> list[PatternExample]:
    """`count` random memories per layer with the machine's patterns, each with three prefixes (the paper's table 1)."""
    with reading(where) as tables:
        tables.study.need("patterns")
        drawn = tables.rows(
            """
            SELECT layer, memory FROM (SELECT DISTINCT layer, memory FROM patterns WHERE annotator = 'machine')
            QUALIFY row_number() OVER (PARTITION BY layer ORDER BY md5(concat_ws(' ', ?, layer, memory))) <= ? ORDER BY ALL
            """,
            [tables.study.settings["seed"], count],
        )
        examples = []
        for memory in (Memory(*row) for row in drawn):
            patterns = _by_programs(tables, memory, "machine")
            places = [row for row in trigger_rows(tables, "triggers", memory) if row[0] in patterns[0].covers[:3]]
            examples.append(PatternExample(str(memory), patterns, with_text(tables, places)))
    return examples


def patterns_of(tables: Tables, memory: Memory) -> list[AnnotatedPattern] | None:
    """The patterns of a memory by all annotators; None before the patterns stage, without annotations."""
    annotations = read(tables.study, memory)
    if not annotations and not tables.study.has("patterns"):
        return None
    programs = _by_programs(tables, memory) if tables.study.has("patterns") else []
    return programs + [
        AnnotatedPattern(annotation.annotator, pattern.kind, pattern.description, list(pattern.covers), None, None)
        for annotation in annotations
        for pattern in annotation.patterns
    ]


def _by_programs(tables: Tables, memory: Memory, annotator: str | None = None) -> list[AnnotatedPattern]:
    rows = tables.rows(
        """
        SELECT annotator, kind, description, covers, p_value, detection FROM patterns
        WHERE layer = ? AND memory = ? AND annotator = coalesce(?, annotator)
        ORDER BY annotator != 'machine', annotator, pattern
        """,
        [*memory, annotator],
    )
    return [AnnotatedPattern(*row) for row in rows]


def patterns_by_annotator(where: Where, memories: list[Memory]) -> dict[tuple[str, Memory], list[Pattern]]:
    """The rows of patterns.parquet, by annotator and memory."""
    with reading(where) as tables:
        rows = tables.rows(
            """
            SELECT annotator, layer, memory, kind, description, covers
            FROM patterns SEMI JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory) USING (layer, memory)
            """,
            [[memory.layer for memory in memories], [memory.memory for memory in memories]],
        )
    patterns: dict[tuple[str, Memory], list[Pattern]] = {}
    for annotator, layer, memory, kind, description, covers in rows:
        patterns.setdefault((annotator, Memory(layer, memory)), []).append(Pattern(kind, description, tuple(covers)))
    return patterns
