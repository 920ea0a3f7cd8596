"""The pyarrow schemas of a study's tables, from the declarations of the stages."""

import pyarrow as pa

from ffscope.stages.registry import tables
from ffscope.stages.stage import BOOL, DOUBLE, INT, INT64, INTS, REAL, REALS, TEXT

_TYPES = {
    INT: pa.int32(),
    INT64: pa.int64(),
    REAL: pa.float32(),
    DOUBLE: pa.float64(),
    TEXT: pa.string(),
    BOOL: pa.bool_(),
    INTS: pa.list_(pa.int32()),
    REALS: pa.list_(pa.float32()),
}
SCHEMAS = {
    file: pa.schema([(column.name, _TYPES[column.type]) for column in table.columns])
    for file, table in tables().items()
}
