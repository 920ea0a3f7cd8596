"""A table that is written part by part, so that its stage can resume after being interrupted."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.study.folder import Study
from ffscope.study.resumable import ResumableFolder
from ffscope.study.schemas import SCHEMAS


class ResumableTable:
    """The parts of one table, numbered from 0. Parts that were made with other settings are deleted."""

    def __init__(self, study: Study, table: str, settings: dict[str, Any], *, folder: str | None = None) -> None:
        """The parts are in the folder of that name, by default that of the table."""
        self.study, self.table, self.schema = study, table, SCHEMAS[table]
        self._folder = ResumableFolder(study, folder or table.removesuffix(".parquet"), settings)

    def missing(self, count: int) -> list[int]:
        """The numbers of the parts, out of `count`, that do not exist yet."""
        files = {_file(number): number for number in range(count)}
        return [files[file] for file in self._folder.missing(files)]

    def write_part(self, number: int, columns: dict[str, Any]) -> None:
        """Write one part."""
        with self._folder.writing(_file(number)) as path:
            pq.write_table(pa.Table.from_pydict(columns, self.schema), path)

    def join(self, count: int, *, sort_by: list[str] | None = None) -> None:
        """Write the table: its parts in order, or all rows sorted by some columns."""
        tables: Any = self._tables(count)
        if sort_by is not None:
            joined = pa.concat_tables([self.schema.empty_table(), *tables])
            tables = [joined.sort_by([(name, "ascending") for name in sort_by])]
        with self.study.table(self.table) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=2**16)

    def drop(self) -> None:
        """Remove the parts, after the stage is marked as done."""
        self._folder.drop()

    def _tables(self, count: int) -> Iterator[pa.Table]:
        for number in range(count):
            yield pq.read_table(self._folder.path(_file(number)), schema=self.schema)


def _file(number: int) -> str:
    return f"{number:06}.parquet"
