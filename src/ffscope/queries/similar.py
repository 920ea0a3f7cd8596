"""Memories similar to a given one: with the same triggers, or with values that promote the same tokens."""

from dataclasses import dataclass

from ffscope.memory_name import Memory
from ffscope.queries.tables import Tables, Where, reading


@dataclass(frozen=True)
class SimilarMemory:
    """Another memory, and how many of the `of` triggers or tokens it shares."""

    memory: str
    shared: int
    of: int


@dataclass(frozen=True)
class Similar:
    """The memories that share most triggers (the same prefixes), and those that share most promoted tokens."""

    triggers: list[SimilarMemory]
    tokens: list[SimilarMemory]


def similar(where: Where, memory: Memory, *, count: int = 10) -> Similar:
    """The memories most similar to one, by triggers and by value; ties in the order of the memories."""
    with reading(where) as tables:
        by_value = _sharing(tables, memory, "promoted", "token", count) if tables.study.has("values") else []
        return Similar(_sharing(tables, memory, "triggers", "sentence, position", count), by_value)


def _sharing(tables: Tables, memory: Memory, table: str, columns: str, count: int) -> list[SimilarMemory]:
    """The memories that share most of a memory's rows in a table."""
    rows = tables.rows(
        f"""
        WITH mine AS (SELECT {columns} FROM {table} WHERE layer = $layer AND memory = $memory)
        SELECT layer, memory, count(*) AS shared, (SELECT count(*) FROM mine)
        FROM {table} SEMI JOIN mine USING ({columns})
        WHERE (layer, memory) != ($layer, $memory) GROUP BY layer, memory ORDER BY shared DESC, layer, memory LIMIT $count
        """,
        {**memory._asdict(), "count": count},
    )
    return [SimilarMemory(str(Memory(*row[:2])), *row[2:]) for row in rows]
