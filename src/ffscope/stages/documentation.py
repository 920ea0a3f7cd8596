"""The stages in words: the table of a study's files, as the documentation has it."""

from ffscope.stages.registry import tables
from ffscope.stages.stage import Column, Table


def file_lines() -> list[str]:
    """One line of a Markdown table for every parquet file: its name, what a row stands for, its columns."""
    return [f"| {table.file} | {table.row} | {_columns(table)} |" for table in tables().values()]


def _columns(table: Table) -> str:
    return table.help or ", ".join(map(_column, table.columns))


def _column(column: Column) -> str:
    return f"{column.name} ({column.help})" if column.help else column.name
