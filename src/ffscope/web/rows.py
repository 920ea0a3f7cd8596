"""Prefixes as a page shows them: no longer than can be read, duplicates folded."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ffscope.queries.prefixes import Trigger
from ffscope.queries.tables import LONGEST

_LONGEST_TITLE = 300


@dataclass(frozen=True)
class Row:
    """A prefix with its whole sentence, token by token. `folded` are the ranks of later ones with the very same text."""

    rank: int
    coefficient: float
    sentence: int
    position: int
    tokens: list[str]
    next_token: str
    title: str | None
    agrees: bool | None  # whether the value's top token is the next token; None where values have not been read
    folded: list[int] = field(default_factory=list)
    quantile: float | None = None


def shown(trigger: Trigger, top: int | None = None) -> Row:
    """One prefix; `top` is the token that the memory's value promotes most."""
    title = trigger.title
    return Row(
        rank=trigger.rank,
        coefficient=trigger.coefficient,
        sentence=trigger.sentence,
        position=trigger.position,
        tokens=[_cut(token, LONGEST) for token in trigger.tokens],
        next_token=_cut(trigger.next_token, LONGEST),
        title=None if title is None else _cut(title, _LONGEST_TITLE),
        agrees=None if top is None else trigger.next_id == top,
    )


def folded(triggers: Iterable[Trigger], top: int | None = None) -> list[Row]:
    """Prefixes in their order, each text once."""
    rows: dict[str, Row] = {}
    for trigger in triggers:
        text = trigger.before + trigger.token
        if text in rows:
            rows[text].folded.append(trigger.rank)
        else:
            rows[text] = shown(trigger, top)
    return list(rows.values())


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"
