"""A study's tables, open to be asked: read where they lie, or held in memory by whoever asks often."""

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

# Views of what questions have in common, with the tables that they need. Held in memory they are as quick as tables.
_DERIVED = {
    # Every token that a value promotes most, with its rank, from 1.
    "promoted": (
        ("values",),
        """SELECT layer, memory, unnest(top_tokens) AS token, unnest(top_probs) AS probability,
            generate_subscripts(top_tokens, 1) AS rank FROM values""",
    ),
    # The machine's first pattern of a memory, and the kinds of all of them.
    "labelled": (
        ("patterns",),
        """SELECT layer, memory, count(*) AS patterns, arg_min(description, pattern) AS description,
            CASE WHEN count(DISTINCT kind) = 2 THEN 'both' ELSE min(kind) END AS kind
        FROM patterns WHERE annotator = 'machine' GROUP BY layer, memory""",
    ),
    # As far as any trigger has read; all of it where the tokenizer does not say how far that is.
    "lowered": (
        ("triggers", "sentences"),
        """SELECT sentence, lower(left(text, coalesce(ends[last + 1], length(text)))) AS text
        FROM sentences JOIN (SELECT sentence, max(position) AS last FROM triggers GROUP BY sentence) USING (sentence)""",
    ),
}
LONGEST = 200  # characters of a token that are shown: a vocabulary may hold any number of them
_MOST_HELD = 2**29  # bytes of a file that is worth holding in memory; a larger one is read where it lies


class Tables:
    """Every table of a study under its name, for any number of threads."""

    def __init__(self, study: Study) -> None:
        self.study = study
        self.tried: dict[str, bool] = {}  # measures of other packages, and whether they can be asked for
        self._database: Any = duckdb.connect()
        self._files = {Path(name).stem: study.path(name) for name in SCHEMAS if study.path(name).is_file()}
        for name, file in self._files.items():
            try:
                # Escaped: a folder's own name may hold what duckdb would take for a pattern, and read other studies by it.
                self._database.read_parquet(glob.escape(str(file))).create_view(name)
            except duckdb.Error as error:
                self.close()
                raise StudyError(
                    f"{file} cannot be read as a table: {str(error).splitlines()[0]}. Make that stage again."
                ) from error
        for name, (needed, query) in _DERIVED.items():
            if all(map(self.has, needed)):
                self._database.execute(f"CREATE VIEW {name} AS {query}")

    def execute(self, query: str, asked: Any = None, **others: Any) -> Any:
        """The answer to a query, to be fetched from. Each has a cursor of its own, since threads must not share one.

        `others` are arrow tables that the query may ask too, under their names.
        """
        try:
            cursor = self._database.cursor()
            for name, table in others.items():
                cursor.register(name, table)
            return cursor.execute(query, asked)
        except duckdb.Error as error:
            said = str(error).splitlines()[0]
            raise StudyError(
                f"A table of {self.study.folder} cannot be read: {said}. Make the stage that wrote it again."
            ) from error
        except RuntimeError as error:
            if "interrupted" not in str(error).lower():
                raise
            raise KeyboardInterrupt from error  # as which Ctrl-C began

    def rows(self, query: str, asked: Any = None) -> list[tuple[Any, ...]]:
        """What a query finds."""
        return self.execute(query, asked).fetchall()

    def row(self, query: str, asked: Any = None) -> dict[str, Any] | None:
        """The first row that a query finds, by its columns' names."""
        answer = self.execute(query, asked)
        found = answer.fetchone()
        return None if found is None else dict(zip((column[0] for column in answer.description), found, strict=True))

    def arrays(self, query: str, asked: Any = None) -> dict[str, np.ndarray]:
        """The columns that a query gives, as arrays. Missing numbers are NaN, anything else that is missing is None."""
        return {name: _array(column) for name, column in self.execute(query, asked).fetchnumpy().items()}

    def columns(self, table: str, *names: str) -> dict[str, np.ndarray]:
        """Columns of one table by their names, as `arrays` has them, the rows in the table's order."""
        return self.arrays(f"SELECT {', '.join(map(_quoted, names))} FROM {_quoted(table)}")

    def count(self, table: str) -> int:
        """How many rows a table has."""
        return self.execute(f"SELECT count(*) FROM {_quoted(table)}").fetchone()[0]

    def has(self, name: str) -> bool:
        """Whether a table is there."""
        return name in self._files

    @cached_property
    def trigger_text(self) -> TriggerText:
        """Where the text of every trigger is."""
        return TriggerText.read(self)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The ids of every spelling."""
        return by_spelling(text for (text,) in self.rows("SELECT text FROM vocabulary ORDER BY token"))

    def hold(self) -> None:
        """Take the tables into memory, one after another; those who ask meanwhile are answered from the files."""
        self._database.execute("CREATE SCHEMA held")
        cursor = self._database.cursor()
        worth = [name for name, file in self._files.items() if file.stat().st_size <= _MOST_HELD]
        for name in [*worth, *(name for name, (needed, _) in _DERIVED.items() if set(needed) <= set(worth))]:
            cursor.execute(f'CREATE TABLE held."{name}" AS SELECT * FROM main."{name}"')
            cursor.execute(f'CREATE OR REPLACE VIEW main."{name}" AS SELECT * FROM held."{name}"')
        if self.has("triggers"):
            _ = self.trigger_text

    def close(self) -> None:
        self._database.close()


def _quoted(name: str) -> str:
    """A name as SQL spells it whatever it is: `case` is a column, and a word of the language."""
    return '"' + name.replace('"', '""') + '"'


def _array(column: Any) -> np.ndarray:
    missing = np.ma.getmaskarray(column)
    if not missing.any():
        return np.asarray(column)
    if column.dtype.kind == "O":
        return np.where(missing, np.array(None), np.asarray(column))
    return column.astype(column.dtype if column.dtype.kind == "f" else np.float64).filled(np.nan)


Where = Tables | Study | Path | str  # whose tables are asked


@contextmanager
def reading(where: Where) -> Iterator[Tables]:
    """The tables of a study, open within the block; those that are open already stay so."""
    if isinstance(where, Tables):
        yield where
        return
    tables = Tables(where if isinstance(where, Study) else Study.open(where))
    try:
        yield tables
    finally:
        tables.close()


def checked(study: Study, memory: Memory) -> Memory:
    """A memory that the study's model has."""
    study.need("triggers")
    counts = study.manifest["model"]["memories"]
    if memory.layer >= len(counts):
        raise MemoryNameError(f"There is no memory {memory}. The study's model has layers 0 to {len(counts) - 1}.")
    if memory.memory >= counts[memory.layer]:
        last = counts[memory.layer] - 1
        raise MemoryNameError(f"There is no memory {memory}. Layer {memory.layer} has memories 0 to {last}.")
    return memory


def spellings(tables: Tables, tokens: Iterable[int]) -> dict[int, str]:
    """Tokens as they are shown."""
    query = f"SELECT token, left(text, {LONGEST}) FROM vocabulary WHERE token IN (SELECT unnest(?::INT[]))"
    return dict(tables.rows(query, [sorted(set(tokens))]))
