"""The table of a study's files in the documentation, generated from the stages."""

from ffscope.stages.registry import tables
from ffscope.stages.stage import Column, Table


def file_lines() -> list[str]:
    """One line of a Markdown table per parquet file: its name, what a row is, its columns."""
    return [f"| {table.file} | {table.row} | {_columns(table)} |" for table in tables().values()]


def _columns(table: Table) -> str:
    return table.help or ", ".join(map(_column, table.columns))


def _column(column: Column) -> str:
    return f"{column.name} ({column.help})" if column.help else column.name
