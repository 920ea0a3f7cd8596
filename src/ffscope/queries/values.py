"""The most predictive values, compared with their keys' triggers (the paper's table 2)."""

from dataclasses import dataclass

from ffscope.memory_name import Memory
from ffscope.queries.prefixes import Trigger, with_text
from ffscope.queries.tables import Tables, Where, reading, spellings


@dataclass(frozen=True)
class PredictiveValue:
    """A value with a high maximum probability, and a trigger of its key: the first that agrees, or else the first."""

    memory: str
    max_prob: float
    prediction: str
    token: int
    triggers: int
    precision: float | None  # None if the memory is dead
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
        triggers_shown = _example_triggers(tables, [(layer, memory, token) for layer, memory, _, token, _, _ in rows])
    return [
        PredictiveValue(
            memory=str(Memory(layer, memory)),
            max_prob=max_prob,
            prediction=spelt.get(token, f"#{token}"),
            token=token,
            triggers=triggers,
            precision=precision,
            trigger=triggers_shown.get(Memory(layer, memory)),
        )
        for layer, memory, max_prob, token, triggers, precision in rows
    ]


def _example_triggers(tables: Tables, wanted: list[tuple[int, int, int]]) -> dict[Memory, Trigger]:
    """For each memory and top token of its value: the first trigger that this token follows, or else the first one."""
    rows = tables.rows(
        """
        SELECT layer, memory, rank, coefficient, sentence, position
        FROM triggers JOIN (SELECT unnest(?::INT[]) AS layer, unnest(?::INT[]) AS memory, unnest(?::INT[]) AS token)
            USING (layer, memory)
        QUALIFY row_number() OVER (PARTITION BY layer, memory ORDER BY next_token != token, rank) = 1
        """,
        [[row[part] for row in wanted] for part in range(3)],
    )
    return dict(zip((Memory(*row[:2]) for row in rows), with_text(tables, [row[2:] for row in rows]), strict=True))
