"""A study's tables, open for queries: read from the files or, for many queries, loaded into memory."""

import glob
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from ffscope.errors import MemoryNameError, StudyError
from ffscope.memory_name import Memory
from ffscope.queries.trigger_text import TriggerText
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from ffscope.tokens import Vocabulary, by_spelling

# Views that several queries share, with the tables that they need. Loaded into memory they are as fast as tables.
_DERIVED = {
    # The top tokens of every value, with their ranks from 1.
    "promoted": (
        ("values",),
        """SELECT layer, memory, unnest(top_tokens) AS token, unnest(top_probs) AS probability,
            generate_subscripts(top_tokens, 1) AS rank FROM values""",
    ),
    # The machine's first pattern of a memory, and the kinds of all its patterns.
    "labelled": (
        ("patterns",),
        """SELECT layer, memory, count(*) AS patterns, arg_min(description, pattern) AS description,
            CASE WHEN count(DISTINCT kind) = 2 THEN 'both' ELSE min(kind) END AS kind
        FROM patterns WHERE annotator = 'machine' GROUP BY layer, memory""",
    ),
    # How many leaks need a memory, and the largest drop that it alone causes.
    "leaking": (
        ("leak_memories",),
        """SELECT layer, memory, count(*) FILTER (holds) AS leaks, max("drop") AS "drop"
        FROM leak_memories GROUP BY layer, memory""",
    ),
    # Lower-case sentences up to the end of their last trigger; whole ones if the tokenizer gives no offsets.
    "lowered": (
        ("triggers", "sentences"),
        """SELECT sentence, lower(left(text, coalesce(ends[last + 1], length(text)))) AS text
        FROM sentences JOIN (SELECT sentence, max(position) AS last FROM triggers GROUP BY sentence) USING (sentence)""",
    ),
}
LONGEST = 200  # characters of a token that are shown: tokens can be of any length
_MOST_HELD = 2**29  # bytes; larger files are not loaded into memory


class Tables:
    """All tables of a study by name, for any number of threads."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.working_measures: dict[str, bool] = {}  # measures of other packages, and whether they can be computed
        self._database: Any = duckdb.connect()
        self._files = {Path(name).stem: study.path(name) for name in SCHEMAS if study.path(name).is_file()}
        for name, file in self._files.items():
            try:
                # Escaped: duckdb would read a folder name with wildcards as a pattern, and might open other studies.
                self._database.read_parquet(glob.escape(str(file))).create_view(name)
            except duckdb.Error as error:
                self.close()
                raise StudyError(
                    f"{file} cannot be read as a table: {str(error).splitlines()[0]}. Run that stage again."
                ) from error
        for name, (needed, query) in _DERIVED.items():
            if all(map(self.has, needed)):
                self._database.execute(f"CREATE VIEW {name} AS {query}")

    def execute(self, query: str, parameters: Any = None, **others: Any) -> Any:
        """Run a query and return its cursor. Each query has a separate cursor, since threads must not share one.

        `others` are arrow tables that the query may use, by name.
        """
        try:
            cursor = self._database.cursor()
            for name, table in others.items():
                cursor.register(name, table)
            return cursor.execute(query, parameters)
        except duckdb.Error as error:
            message = str(error).splitlines()[0]
            raise StudyError(
                f"A table of {self.study.folder} cannot be read: {message}. Run the stage that wrote it again."
            ) from error
        except RuntimeError as error:
            if "interrupted" not in str(error).lower():
                raise
            raise KeyboardInterrupt from error  # duckdb reports Ctrl-C as a RuntimeError

    def rows(self, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """All rows of a query."""
        return self.execute(query, parameters).fetchall()

    def row(self, query: str, parameters: Any = None) -> dict[str, Any] | None:
        """The first row of a query, by column name; None if there is none."""
        cursor = self.execute(query, parameters)
        values = cursor.fetchone()
        return None if values is None else dict(zip((column[0] for column in cursor.description), values, strict=True))

    def arrays(self, query: str, parameters: Any = None) -> dict[str, np.ndarray]:
        """The columns of a query as arrays. Missing numbers are NaN, other missing values are None."""
        return {name: _array(column) for name, column in self.execute(query, parameters).fetchnumpy().items()}

    def columns(self, table: str, *names: str) -> dict[str, np.ndarray]:
        """Columns of one table as arrays, as `arrays` returns them, in the order of its rows."""
        return self.arrays(f"SELECT {', '.join(map(_quoted, names))} FROM {_quoted(table)}")

    def count(self, table: str) -> int:
        """The number of rows of a table."""
        return self.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0]

    def has(self, name: str) -> bool:
        """Whether the study has a table."""
        return name in self._files

    @cached_property
    def trigger_text(self) -> TriggerText:
        """The places of all triggers' texts."""
        return TriggerText.read(self)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The ids of every spelling."""
        return by_spelling(text for (text,) in self.rows("SELECT text FROM vocabulary ORDER BY token"))

    def load_into_memory(self) -> None:
        """Load the tables into memory, one after another; queries in the meantime read the files."""
        self._database.execute("CREATE SCHEMA loaded")
        cursor = self._database.cursor()
        small = [name for name, file in self._files.items() if file.stat().st_size <= _MOST_HELD]
        for name in [*small, *(name for name, (needed, _) in _DERIVED.items() if set(needed) <= set(small))]:
            cursor.execute(f'CREATE TABLE loaded."{name}" AS SELECT * FROM main."{name}"')
            cursor.execute(f'CREATE OR REPLACE VIEW main."{name}" AS SELECT * FROM loaded."{name}"')
        if self.has("triggers"):
            _ = self.trigger_text

    def close(self) -> None:
        self._database.close()


def _quoted(name: str) -> str:
    """A quoted SQL name, since columns such as `case` are keywords."""
    return '"' + name.replace('"', '""') + '"'


def _array(column: Any) -> np.ndarray:
    missing = np.ma.getmaskarray(column)
    if not missing.any():
        return np.asarray(column)
    if column.dtype.kind == "O":
        return np.where(missing, np.array(None), np.asarray(column))
    return column.astype(column.dtype if column.dtype.kind == "f" else np.float64).filled(np.nan)


Where = Tables | Study | Path | str  # the study to query


@contextmanager
def reading(where: Where) -> Iterator[Tables]:
    """The tables of a study, open within the block; tables that were already open stay open."""
    if isinstance(where, Tables):
        yield where
        return
    tables = Tables(where if isinstance(where, Study) else Study.open(where))
    try:
        yield tables
    finally:
        tables.close()


def checked(study: Study, memory: Memory) -> Memory:
    """The memory, if the study's model has it."""
    study.need("triggers")
    counts = study.manifest["model"]["memories"]
    if memory.layer >= len(counts):
        raise MemoryNameError(f"There is no memory {memory}. The study's model has layers 0 to {len(counts) - 1}.")
    if memory.memory >= counts[memory.layer]:
        last = counts[memory.layer] - 1
        raise MemoryNameError(f"There is no memory {memory}. Layer {memory.layer} has memories 0 to {last}.")
    return memory


def spellings(tables: Tables, tokens: Iterable[int]) -> dict[int, str]:
    """The texts of tokens as they are shown."""
    query = f"SELECT token, left(text, {LONGEST}) FROM vocabulary WHERE token IN (SELECT unnest(?::INT[]))"
    return dict(tables.rows(query, [sorted(set(tokens))]))
