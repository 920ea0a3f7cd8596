"""Values that are sure of a token, held against their keys' triggers (the paper's table 2)."""

from dataclasses import dataclass

from ffscope.memory_name import Memory
from ffscope.queries.prefixes import Trigger, told
from ffscope.queries.tables import Tables, Where, reading, spellings


@dataclass(frozen=True)
class PredictiveValue:
    """A value that is sure of its first token, held against its key's triggers: the first that agrees, or else the first."""

    memory: str
    max_prob: float
    prediction: str
    token: int
    triggers: int
    precision: float | None  # None where the memory is dead
    trigger: Trigger | None


def predictive_values(where: Where, count: int = 100) -> list[PredictiveValue]:
    """The searched values with the highest maximum probability."""
    with reading(where) as tables:
        for stage in ("values", "agreement"):
            tables.study.need(stage)
        rows = tables.rows(
            """
            SELECT v.layer, v.memory, v.max_prob, v.top_tokens[1], coalesce(a.triggers, 0), a.precision
            FROM values v SEMI JOIN memories m USING (layer, memory) LEFT JOIN agreement a USING (layer, memory)
            ORDER BY v.max_prob DESC, v.layer, v.memory LIMIT ?
            """,
            [count],
        )
        spelt = spellings(tables, [row[3] for row in rows])
        telling = _telling(tables, [(layer, memory, token) for layer, memory, _, token, _, _ in rows])
    return [
        PredictiveValue(
            memory=str(Memory(layer, memory)),
            max_prob=max_prob,
            prediction=spelt.get(token, f"#{token}"),
            token=token,
            triggers=triggers,
            precision=precision,
            trigger=telling.get(Memory(layer, memory)),
        )
        for layer, memory, max_prob, token, triggers, precision in rows
    ]


def _telling(tables: Tables, wanted: list[tuple[int, int, int]]) -> dict[Memory, Trigger]:
    """Of each memory with its value's token, the first trigger that this token follows, or else its first."""
    rows = tables.rows(
        """
        SELECT layer, memory, rank, coefficient, sentence, position
        FROM triggers JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory, unnest(?::INT[]) AS token)
            USING (layer, memory)
        QUALIFY row_number() OVER (PARTITION BY layer, memory ORDER BY next_token != token, rank) = 1
        """,
        [[one[part] for one in wanted] for part in range(3)],
    )
    return dict(zip((Memory(*row[:2]) for row in rows), told(tables, [row[2:] for row in rows]), strict=True))
