"""Curves of pruned models, and the memory that another one is nearest to."""

from typing import Any

from ffscope.axes import Array
from ffscope.memory_name import Memory
from ffscope.queries.tables import Tables, Where, reading


def pruning_points(tables: Tables) -> dict[str, Array]:
    """Each point of a curve, over all layers or in one (NaN for all). Of random ones, the mean, lowest and highest of the seeds."""
    return tables.arrays(
        """
        SELECT score, layer, share, max(memories) AS memories, avg(change) AS change,
            CASE WHEN count(seed) > 0 THEN min(change) ELSE min(change_low) END AS low,
            CASE WHEN count(seed) > 0 THEN max(change) ELSE max(change_high) END AS high
        FROM pruning GROUP BY score, layer, share ORDER BY score, layer, share
        """
    )


def redundancy_panel(where: Where, memory: Memory) -> dict[str, Any] | None:
    """The memory that has most of a memory's triggers and a parallel value, as the table of a panel."""
    with reading(where) as tables:
        row = tables.row("SELECT * FROM redundancy WHERE layer = ? AND memory = ?", memory)
    if row is None or row["partner"] is None:
        return None
    return {
        "heads": ["Nearest memory", "Redundancy", "Cosine of the values", "Shared triggers", "of"],
        "kinds": ["memory", "real", "real", "count", "count"],
        "rows": [
            [
                str(Memory(memory.layer, row["partner"])),
                *(row[name] for name in ("redundancy", "cosine", "shared_triggers", "triggers")),
            ]
        ],
    }
