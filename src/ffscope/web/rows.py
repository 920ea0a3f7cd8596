"""Prefixes in the JSON of a page: cut to a readable length, duplicates merged."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ffscope.queries.prefixes import Trigger
from ffscope.queries.tables import LONGEST

_MAX_TITLE = 300


@dataclass(frozen=True)
class Row:
    """A prefix with its whole sentence, token by token. `folded`: the ranks of later prefixes with the same text."""

    rank: int
    coefficient: float
    sentence: int
    position: int
    tokens: list[str]
    next_token: str
    title: str | None
    agrees: bool | None  # whether the value's top token is the next token; None without the stage values
    folded: list[int] = field(default_factory=list)
    quantile: float | None = None


def prefix_row(trigger: Trigger, top: int | None = None) -> Row:
    """The row of a prefix; `top` is the id of the value's top token."""
    title = trigger.title
    return Row(
        rank=trigger.rank,
        coefficient=trigger.coefficient,
        sentence=trigger.sentence,
        position=trigger.position,
        tokens=[_cut(token, LONGEST) for token in trigger.tokens],
        next_token=_cut(trigger.next_token, LONGEST),
        title=None if title is None else _cut(title, _MAX_TITLE),
        agrees=None if top is None else trigger.next_id == top,
    )


def merged_rows(triggers: Iterable[Trigger], top: int | None = None) -> list[Row]:
    """The rows of prefixes in their order, each text once."""
    rows: dict[str, Row] = {}
    for trigger in triggers:
        text = trigger.before + trigger.token
        if text in rows:
            rows[text].folded.append(trigger.rank)
        else:
            rows[text] = prefix_row(trigger, top)
    return list(rows.values())


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
