"""The numbers behind the report's figures, as arrays with one item per row.

Plain columns of a single table are read with `Tables.columns` instead.
"""

import numpy as np

from ffscope.queries.tables import Tables

Columns = dict[str, np.ndarray]


def mutation_changes(tables: Tables) -> Columns:
    """For every layer, removed token and memory: the sum of the changes (total) and their number (rows)."""
    return tables.arrays(
        "SELECT layer, removed, memory, sum(change::DOUBLE) AS total, count(*) AS rows FROM mutation "
        "WHERE isfinite(change) GROUP BY ALL ORDER BY ALL"
    )


def memory_counts(tables: Tables) -> Columns:
    """For every searched layer: the number of its memories, and of those that never fired (dead)."""
    return tables.arrays(
        "SELECT layer, count(*) AS memories, count(*) - sum((maximum > 0)::INT) AS dead FROM memories "
        "GROUP BY 1 ORDER BY 1"
    )


def sign_shares(tables: Tables) -> Columns:
    """For every searched layer: the shares of its coefficients that are below 0 (negative) and exactly 0 (zero)."""
    return tables.arrays(
        "SELECT layer, sum(list_sum(histogram[1:22]))::DOUBLE / sum(seen) AS negative, "
        "sum(list_sum(histogram[23:23]))::DOUBLE / sum(seen) AS zero FROM memories GROUP BY 1"
    )


def zero_matches(tables: Tables) -> Columns:
    """For every example and layer: whether no memory predicts what the layer does (none), and the example's columns."""
    return tables.arrays(
        "SELECT example, layer, (matches = 0)::INT AS none, position, prediction FROM composition "
        "JOIN examples USING (example) WHERE matches IS NOT NULL ORDER BY layer, example"
    )


def frequent_tokens(tables: Tables, count: int) -> list[int]:
    """The most frequent tokens of the corpus, in descending order."""
    rows = tables.rows(
        "SELECT token FROM (SELECT unnest(tokens) AS token FROM sentences) GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT ?",
        [count],
    )
    return [token for (token,) in rows]


def residual_predictions(tables: Tables) -> Columns:
    """For every example and layer: whether the residual's top token is the model's final prediction (same)."""
    return tables.arrays(
        "SELECT layer, (residual_top = prediction)::INT AS same FROM refinement JOIN examples USING (example)"
    )


def pattern_annotators(tables: Tables) -> list[str]:
    """The names of the programs that have rows in the table of patterns."""
    return [name for (name,) in tables.rows("SELECT DISTINCT annotator FROM patterns ORDER BY annotator")]


def labelled_prefixes(tables: Tables, annotator: str) -> Columns:
    """Every prefix that a program examined, with its memory, the number of its patterns, and the kinds that cover the prefix."""
    stages = tables.study.manifest["stages"]
    labels = stages.get("labels", {})
    without_pattern = labels.get("without_pattern", []) if labels.get("annotator") == annotator else []
    return tables.arrays(
        """
        WITH mine AS (SELECT * FROM patterns WHERE annotator = $name),
        examined AS (
            SELECT DISTINCT layer, memory FROM triggers
            WHERE $name = 'machine' OR (layer, memory) IN (SELECT (layer, memory) FROM mine)
                OR list_contains($without_pattern, 'L' || layer || '.' || memory)
        ),
        counted AS (SELECT layer, memory, count(*) AS patterns FROM mine GROUP BY ALL),
        covered AS (
            SELECT layer, memory, unnest(covers) AS rank, kind FROM mine
        ),
        kinds AS (
            SELECT layer, memory, rank, bool_or(kind = 'shallow') AS shallow, bool_or(kind = 'semantic') AS semantic
            FROM covered GROUP BY ALL
        )
        SELECT layer, memory, coalesce(patterns, 0) AS patterns, coalesce(shallow, false) AS shallow,
            coalesce(semantic, false) AS semantic
        FROM triggers SEMI JOIN examined USING (layer, memory) LEFT JOIN counted USING (layer, memory)
            LEFT JOIN kinds USING (layer, memory, rank)
        WHERE rank <= $triggers ORDER BY layer, memory, rank
        """,
        {"name": annotator, "without_pattern": without_pattern, "triggers": stages["patterns"]["pattern_triggers"]},
    )
