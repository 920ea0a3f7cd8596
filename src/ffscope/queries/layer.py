"""The memories of one layer with their measures, and one row per layer."""

from dataclasses import dataclass
from typing import Any

from ffscope.errors import MemoryNameError
from ffscope.memory_name import Memory
from ffscope.queries.measures import joined, mean, measures_in, selected
from ffscope.queries.tables import Tables, Where, reading
from ffscope.stages.registry import measures


@dataclass(frozen=True)
class LayerPage:
    """The searched memories of a layer, column by column. Columns of stages that have not been run are absent."""

    layer: int
    layers: int
    memories: int
    columns: dict[str, list[Any]]


LayerRow = dict[str, float | int | None]
"""A summary of the searched memories of a layer: their number, and the mean of every measure that declares one."""


def layer_page(where: Where, layer: int) -> LayerPage:
    """Every searched memory of a layer with all its measures."""
    with reading(where) as tables:
        counts = tables.study.manifest["model"]["memories"]
        searched_layer(tables, layer)
        columns = ", ".join(["memories.memory", *selected(tables)])
        answer = tables.execute(
            f"SELECT {columns} {joined(tables)} WHERE memories.layer = ? ORDER BY memories.memory", [layer]
        )
        names = [column[0] for column in answer.description]
        rows = answer.fetchall()
        lists = zip(*rows, strict=True) if rows else [()] * len(names)
        return LayerPage(layer, len(counts), counts[layer], dict(zip(names, map(list, lists), strict=True)))


def measures_of(where: Where, memories: list[Memory]) -> dict[str, dict[str, Any]]:
    """The measures of memories, by the names of the memories; memories that were not searched are absent."""
    with reading(where) as tables:
        answer = tables.execute(
            f"""
            SELECT memories.layer, memories.memory, {", ".join(selected(tables))} {joined(tables)}
            SEMI JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory) USING (layer, memory)
            """,
            [[memory.layer for memory in memories], [memory.memory for memory in memories]],
        )
        names = [column[0] for column in answer.description][2:]
        return {str(Memory(*row[:2])): dict(zip(names, row[2:], strict=True)) for row in answer.fetchall()}


def searched_layer(tables: Tables, layer: int) -> int:
    """The layer, if the study's model has it and it was searched."""
    tables.study.need("triggers")
    count = len(tables.study.manifest["model"]["memories"])
    if not 0 <= layer < count:
        raise MemoryNameError(f"There is no layer {layer}. The study's model has layers 0 to {count - 1}.")
    if not tables.rows("SELECT 1 FROM memories WHERE layer = ? LIMIT 1", [layer]):
        raise MemoryNameError(
            f"Layer {layer} was not searched: the search was restricted to other layers. Choose one of those."
        )
    return layer


def searched_layers(tables: Tables) -> list[int]:
    """The layers that were searched."""
    return [layer for (layer,) in tables.rows("SELECT DISTINCT layer FROM memories ORDER BY layer")]


def layer_rows(where: Where) -> list[LayerRow]:
    """One row for every searched layer; a mean is None if its stage has not been run."""
    with reading(where) as tables:
        tables.study.need("triggers")
        available = measures_in(tables)
        means = {measure.mean.name: measure for _, measure in measures().values() if measure.mean is not None}
        columns = [mean(measure) if measure.name in available else "NULL" for measure in means.values()]
        rows = tables.rows(
            f"""
            SELECT memories.layer, count(*), sum((memories.maximum <= 0)::INT), {", ".join(columns)}
            {joined(tables)} GROUP BY memories.layer ORDER BY memories.layer
            """
        )
        counts = tables.study.manifest["model"]["memories"]
        names = ("searched", "dead", *means)
        return [{"layer": row[0], "memories": counts[row[0]], **dict(zip(names, row[1:], strict=True))} for row in rows]
