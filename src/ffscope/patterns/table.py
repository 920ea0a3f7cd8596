"""patterns.parquet, with the rows of all annotators that are programs."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ffscope.memory_name import Memory
from ffscope.patterns.pattern import Pattern
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

TABLE = "patterns.parquet"
_ORDER = ("layer", "memory", "annotator", "pattern")


def write_patterns(
    study: Study,
    annotator: str,
    patterns: Mapping[Memory, Sequence[Pattern]],
    *,
    replacing: Collection[Memory] | None = None,
) -> None:
    """Write an annotator's patterns, numbered from 1 per memory. They replace its earlier rows, all or those of `replacing`."""
    rows = [
        _row(annotator, memory, number, pattern)
        for memory, best in patterns.items()
        for number, pattern in enumerate(best, 1)
    ]
    table = pa.Table.from_pylist(rows, SCHEMAS[TABLE])
    if study.path(TABLE).is_file():
        existing = pq.read_table(study.path(TABLE), schema=SCHEMAS[TABLE])
        table = pa.concat_tables([table, existing.filter(pc.invert(_replaced(existing, annotator, replacing)))])
    with study.table(TABLE) as writer:
        writer.write_table(table.sort_by([(name, "ascending") for name in _ORDER]), row_group_size=2**16)


def _replaced(existing: pa.Table, annotator: str, replacing: Collection[Memory] | None) -> Any:
    """Which rows belong to the annotator and are replaced."""
    by_annotator = pc.equal(existing["annotator"], annotator)
    if replacing is None:
        return by_annotator
    places = zip(existing["layer"].to_pylist(), existing["memory"].to_pylist(), strict=True)
    return pc.and_(by_annotator, pa.array([Memory(*place) in replacing for place in places], pa.bool_()))


def _row(annotator: str, memory: Memory, number: int, pattern: Pattern) -> dict[str, Any]:
    return {
        "layer": memory.layer,
        "memory": memory.memory,
        "pattern": number,
        "kind": pattern.kind,
        "description": pattern.description,
        "covers": list(pattern.covers),
        "support": pattern.support,
        "p_value": pattern.p_value,
        "annotator": annotator,
        "detection": pattern.detection,
        "firing_share": pattern.firing_share,
    }
