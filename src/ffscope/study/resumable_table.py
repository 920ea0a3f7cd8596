"""A table of a study in the making: part after part on the disk, so that a stage that was stopped goes on where it was."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS

_NOTE = "begun.json"


class ResumableTable:
    """The parts of one table, numbered from 0. Those of a stage that was begun with other settings are dropped."""

    def __init__(self, study: Study, table: str, settings: dict[str, Any]) -> None:
        self.study, self.table, self.schema = study, table, SCHEMAS[table]
        self._folder = f".{table.removesuffix('.parquet')}"
        folder, wanted = study.path(self._folder), json.dumps(settings, sort_keys=True)
        if not (folder / _NOTE).is_file() or (folder / _NOTE).read_text(encoding="utf-8") != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            with study.replacing(f"{self._folder}/{_NOTE}") as path:
                path.write_text(wanted, encoding="utf-8")

    def missing(self, count: int) -> list[int]:
        """Which of `count` parts are still to be made."""
        return [number for number in range(count) if not self.study.path(self._name(number)).is_file()]

    def keep(self, number: int, columns: dict[str, Any]) -> None:
        """Put one part by."""
        with self.study.replacing(self._name(number)) as path:
            pq.write_table(pa.Table.from_pydict(columns, self.schema), path)

    def join(self, count: int, *, sort_by: list[str] | None = None) -> None:
        """Write the table: its parts one after the other, or all rows sorted by some columns; then drop the parts."""
        tables: Any = self._tables(count)
        if sort_by is not None:
            joined = pa.concat_tables([self.schema.empty_table(), *tables])
            tables = [joined.sort_by([(name, "ascending") for name in sort_by])]
        with self.study.table(self.table) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=2**16)

    def drop(self) -> None:
        """Remove the parts, when the stage is noted as done."""
        shutil.rmtree(self.study.path(self._folder), ignore_errors=True)

    def _tables(self, count: int) -> Iterator[pa.Table]:
        for number in range(count):
            yield pq.read_table(self.study.path(self._name(number)), schema=self.schema)

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:06}.parquet"
