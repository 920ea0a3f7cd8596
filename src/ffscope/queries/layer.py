"""One layer: its memories side by side, and the layers beside each other."""

from collections.abc import Container
from dataclasses import dataclass
from typing import Any

from ffscope.errors import MemoryNameError
from ffscope.memory_name import Memory
from ffscope.queries.tables import LONGEST, Tables, Where, reading

# A memory's measures by name, each with the stage that makes it and what it is in SQL.
MEASURES = {
    "fires": ("triggers", "m.fired / greatest(m.seen, 1)"),
    "mean": ("triggers", "m.mean"),
    "maximum": ("triggers", "m.maximum"),
    "dead": ("triggers", "(m.maximum <= 0)"),
    "top": ("values", f"left(spelt.text, {LONGEST})"),
    "max_prob": ("values", "v.max_prob"),
    "norm": ("values", "v.norm"),
    "agrees": ("agreement", "a.agrees"),
    "next_rank": ("agreement", "a.next_rank"),
    "precision": ("agreement", "a.precision"),
    "patterns": ("patterns", "coalesce(p.patterns, 0)"),
    "kind": ("patterns", "p.kind"),
    "pattern": ("patterns", f"left(p.description, {5 * LONGEST})"),
}
_JOINED = {
    "values": "LEFT JOIN values v USING (layer, memory) LEFT JOIN vocabulary spelt ON spelt.token = v.top_tokens[1]",
    "agreement": "LEFT JOIN agreement a USING (layer, memory)",
    "patterns": "LEFT JOIN labelled p USING (layer, memory)",
}


@dataclass(frozen=True)
class LayerPage:
    """The searched memories of a layer, column by column. Columns of stages that have not been done are not there."""

    layer: int
    layers: int
    memories: int
    columns: dict[str, list[Any]]


@dataclass(frozen=True)
class LayerRow:
    """What the searched memories of a layer are like; None where a stage has not been done."""

    layer: int
    memories: int
    searched: int
    dead: int
    fires: float
    max_prob: float | None
    agreement: float | None
    precision: float | None
    patterns: float | None


def layer_page(where: Where, layer: int) -> LayerPage:
    """Every searched memory of a layer with all its measures."""
    with reading(where) as tables:
        counts = tables.study.manifest["model"]["memories"]
        searched_layer(tables, layer)
        query = f"SELECT m.memory, {', '.join(measured(tables))} {joined(tables)} WHERE m.layer = ? ORDER BY m.memory"
        answer = tables.execute(query, [layer])
        names = [column[0] for column in answer.description]
        rows = answer.fetchall()
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        return LayerPage(layer, len(counts), counts[layer], dict(zip(names, map(list, columns), strict=True)))


def measures_of(where: Where, memories: list[Memory]) -> dict[str, dict[str, Any]]:
    """The measures of memories by their names; of a memory that was not searched there are none."""
    with reading(where) as tables:
        answer = tables.execute(
            f"""
            SELECT m.layer, m.memory, {", ".join(measured(tables))} {joined(tables)}
            SEMI JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory) USING (layer, memory)
            """,
            [[memory.layer for memory in memories], [memory.memory for memory in memories]],
        )
        names = [column[0] for column in answer.description][2:]
        return {str(Memory(*row[:2])): dict(zip(names, row[2:], strict=True)) for row in answer.fetchall()}


def searched_layer(tables: Tables, layer: int) -> int:
    """A layer that the study's model has and the search has not left out."""
    tables.study.need("triggers")
    count = len(tables.study.manifest["model"]["memories"])
    if not 0 <= layer < count:
        raise MemoryNameError(f"There is no layer {layer}. The study's model has layers 0 to {count - 1}.")
    if not tables.rows("SELECT 1 FROM memories WHERE layer = ? LIMIT 1", [layer]):
        raise MemoryNameError(f"Layer {layer} was not searched: the search was restricted to other layers.")
    return layer


def layer_rows(where: Where) -> list[LayerRow]:
    """Every searched layer in one row."""
    with reading(where) as tables:
        tables.study.need("triggers")
        made = {name for name, (stage, _) in MEASURES.items() if tables.study.has(stage)}
        means = [
            f"avg({MEASURES[name][1]}{'::INT' if name == 'agrees' else ''})" if name in made else "NULL"
            for name in ("max_prob", "agrees", "precision", "patterns")
        ]
        rows = tables.rows(
            f"""
            SELECT m.layer, count(*), sum((m.maximum <= 0)::INT), avg({MEASURES["fires"][1]}), {", ".join(means)}
            {joined(tables)} GROUP BY m.layer ORDER BY m.layer
            """
        )
        counts = tables.study.manifest["model"]["memories"]
        return [LayerRow(row[0], counts[row[0]], *row[1:]) for row in rows]


def measured(tables: Tables) -> list[str]:
    """The measures that a study has, as columns of a query."""
    return [f"{said} AS {name}" for name, (stage, said) in MEASURES.items() if tables.study.has(stage)]


def joined(tables: Tables, stages: Container[str] = tuple(_JOINED)) -> str:
    """Where these columns come from, those of all stages or of some."""
    wanted = (join for stage, join in _JOINED.items() if stage in stages and tables.study.has(stage))
    return " ".join(["FROM memories m", *wanted])
