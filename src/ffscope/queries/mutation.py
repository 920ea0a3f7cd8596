"""How the coefficients of one memory's triggers change when a token is removed."""

from dataclasses import dataclass
from statistics import median
from typing import Any

from ffscope.memory_name import Memory
from ffscope.queries.tables import Where, reading, spellings

REMOVED = ("first", "last", "random")


@dataclass(frozen=True)
class Change:
    """The median change of the coefficient over `count` triggers."""

    median: float
    count: int


@dataclass(frozen=True)
class Mutated:
    """A trigger without one of its tokens. change is (mutated - coefficient) / coefficient."""

    rank: int
    removed: str
    removed_index: int
    token: str
    coefficient: float
    mutated: float
    change: float


@dataclass(frozen=True)
class Mutation:
    """The effect of each removal, as medians and trigger by trigger."""

    summary: dict[str, Change]
    rows: list[Mutated]


def mutation_of(where: Where, memory: Memory) -> Mutation | None:
    """The mutations of one memory; None if it was not mutated."""
    with reading(where) as tables:
        if not tables.study.has("mutation"):
            return None
        rows = tables.rows(
            """
            SELECT m.rank, m.removed, m.removed_index, s.tokens[m.removed_index + 1], m.coefficient, m.mutated, m.change
            FROM mutation m JOIN triggers t USING (layer, memory, rank) JOIN sentences s USING (sentence)
            WHERE m.layer = ? AND m.memory = ? AND isfinite(m.change) ORDER BY m.rank, m.removed
            """,
            memory,
        )
        spelt = spellings(tables, [row[3] for row in rows if row[3] is not None])
    mutated = [
        Mutated(rank, removed, at, spelt.get(token, ""), *numbers) for rank, removed, at, token, *numbers in rows
    ]
    changes = {name: [row.change for row in mutated if row.removed == name] for name in REMOVED}
    summary = {name: Change(median(values), len(values)) for name, values in changes.items() if values}
    return Mutation(summary, mutated) if mutated else None


def mutation_panel(where: Where, memory: Memory) -> dict[str, Any] | None:
    """The mutations of one memory as the table of a panel, with all removals under `more`; None if it was not mutated."""
    mutation = mutation_of(where, memory)
    if mutation is None:
        return None
    return {
        "heads": ["Removed token", "Median change", "Triggers"],
        "kinds": ["text", "signed share", "count"],
        "rows": [[removed, change.median, change.count] for removed, change in mutation.summary.items()],
        "more": {
            "title": "Each removal",
            "heads": ["Rank", "Removed", "Token", "From", "To", "Change"],
            "kinds": ["count", "text", "token", "real", "real", "signed share"],
            "rows": [
                [row.rank, row.removed, row.token, row.coefficient, row.mutated, row.change] for row in mutation.rows
            ],
        },
    }
