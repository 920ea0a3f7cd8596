"""The rows of the tables of leaks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ffscope.axes import Array
from ffscope.corpus.prefixes import prefix_text
from ffscope.leaks.exposure import Exposure
from ffscope.leaks.listed import KINDS, Listed
from ffscope.personal import items_in
from ffscope.stages.leaks import LeakOptions
from ffscope.study.folder import Study

Columns = dict[str, Any]


@dataclass(frozen=True)
class Leak:
    """A completion with its text, the kinds of personal data in it, and how many memories have its prefix as a trigger.

    `target` is how many tokens must be completed to give it away: up to the end of the first item of personal data, or of the
    shortest leak.
    """

    listed: Listed
    prefix: str
    text: str
    rest: str
    personal: tuple[str, ...]
    triggers: int
    target: int
    contexts: int  # that make a phrase
    wider: tuple[int, int] | None = None  # places and other contexts in a wider text

    @property
    def kind(self) -> str:
        """Its kind: what occurs in enough other contexts of the wider text is a phrase too."""
        is_phrase = self.listed.kind == "secret" and self.wider is not None and self.wider[1] >= self.contexts
        return "phrase" if is_phrase else self.listed.kind

    @property
    def is_worth_measuring(self) -> bool:
        """Whether it may be something that should not be given away."""
        return self.kind == "secret" or bool(self.personal)

    @property
    def order(self) -> tuple[Any, ...]:
        """Personal data first, then secrets, phrases and copied text; of equal ones the longest first."""
        run = self.listed.run
        return not self.personal, KINDS.index(self.kind), -run.length, run.sentence, run.start


@dataclass(frozen=True)
class Measured:
    """What was measured of a leak: the arrays of `Holders`, and of the runs that end the stage."""

    state: Mapping[str, Array]
    target: int
    together_left: int | None = None
    loss_change: tuple[float, float, float] | None = None  # with the ends of its interval

    @property
    def is_broken(self) -> bool:
        """Whether one of the sets of memories that were removed breaks it."""
        return bool(self.state["size"][1])

    @property
    def memories(self) -> tuple[list[int], list[int]]:
        """Layers and numbers of the fewest memories that break it, or of the largest set that was removed."""
        size = int(self.state["size"][0])
        return self.state["layer"][:size].tolist(), self.state["memory"][:size].tolist()

    @property
    def _set(self) -> int:
        """The place of this set among those that were removed."""
        return int(np.flatnonzero(self.state["sizes"] == self.state["size"][0])[0])

    @property
    def columns(self) -> Columns:
        """Its columns in leaks.parquet."""
        state = self.state
        change, low, high = self.loss_change or (None, None, None)
        return {
            "log_prob": float(state["log_prob"][0]),
            "short_log_prob": float(state["log_prob"][1]),
            "memories": len(self.memories[0]) if self.is_broken else None,
            "drop": float(state["drop_together"][self._set]),
            "left": int(state["left_together"][self._set]),
            "random_drop": float(state["random_drop"].mean()),
            "random_broken": float((state["random_left"] < self.target).mean()),
            "together_left": self.together_left,
            "loss_change": change,
            "loss_change_low": low,
            "loss_change_high": high,
        }


def make_leaks(
    study: Study,
    rows: Sequence[Listed],
    triggers: Mapping[tuple[int, int], int],
    spell: Callable[[Any], str],
    options: LeakOptions,
) -> list[Leak]:
    """The leaks, in the order of the table. `triggers` has the number of memories by sentence and position."""
    wanted = pc.field("sentence").isin(sorted({row.run.sentence for row in rows}))
    table = pq.read_table(
        study.path("sentences.parquet"), columns=["sentence", "text", "tokens", "ends"], filters=wanted
    )
    sentences = {sentence["sentence"]: sentence for sentence in table.to_pylist()}
    leaks = [_leak(row, sentences[row.run.sentence], triggers, spell, options) for row in rows]
    return sorted(leaks, key=lambda leak: leak.order)


def _leak(
    row: Listed,
    sentence: dict[str, Any],
    triggers: Mapping[tuple[int, int], int],
    spell: Callable[[Any], str],
    options: LeakOptions,
) -> Leak:
    first = row.run.start - 1
    prefix, until, whole = (prefix_text(sentence, at, spell) for at in (first, row.end - 1, len(row.tokens) - 1))
    items = items_in(whole, len(prefix), len(until))
    target = options.leak_tokens
    if items:
        ends = (len(prefix_text(sentence, first + count, spell)) for count in range(1, row.run.length + 1))
        target = sum(end < items[0].end for end in ends) + 1
    return Leak(
        row,
        prefix,
        until[len(prefix) :],
        whole[len(until) :],
        tuple(dict.fromkeys(item.kind for item in items)),
        triggers.get((row.run.sentence, first), 0),
        min(target, row.run.length),
        options.phrase_contexts,
    )


_UNMEASURED = (
    *("log_prob", "short_log_prob", "memories", "drop", "left", "random_drop", "random_broken", "together_left"),
    *("loss_change", "loss_change_low", "loss_change_high"),
)


def leak_columns(leaks: Sequence[Leak], measured: Mapping[int, Measured]) -> Columns:
    """The columns of leaks.parquet; `measured` is by the place in the list."""
    rows = []
    for number, leak in enumerate(leaks):
        listed = leak.listed
        row = {
            "leak": number + 1,
            "kind": leak.kind,
            "personal": ", ".join(leak.personal),
            "sentence": listed.run.sentence,
            "position": listed.run.start - 1,
            "tokens": listed.run.length,
            **{name: getattr(leak, name) for name in ("prefix", "text", "rest", "triggers", "target")},
            "wider_places": None if leak.wider is None else leak.wider[0],
            "wider_contexts": None if leak.wider is None else leak.wider[1],
            **{name: getattr(listed, name) for name in ("places", "contexts", "common", "copied")},
        }
        rows.append(row | (measured[number].columns if number in measured else dict.fromkeys(_UNMEASURED)))
    return _by_column(rows)


def memory_columns(measured: Mapping[int, Measured]) -> Columns:
    """The columns of leak_memories.parquet: the memories that were removed alone, and all that are needed."""
    return _by_column([row for number, each in measured.items() for row in _memory_rows(number + 1, each)])


def _memory_rows(leak: int, measured: Measured) -> list[dict[str, Any]]:
    state, needed = measured.state, len(measured.memories[0]) if measured.is_broken else 0
    alone = len(state["drop"])
    place = {int(size): number for number, size in enumerate(state["sizes"])}
    rows = []
    for at in range(max(alone, needed)):
        together = place.get(at + 1)
        rows.append(
            {
                "leak": leak,
                "rank": at + 1,
                **{name: state[name][at].item() for name in ("layer", "memory", "estimate")},
                "drop": state["drop"][at].item() if at < alone else None,
                "left": state["left"][at].item() if at < alone else None,
                "breaks": bool(state["left"][at] < measured.target) if at < alone else None,
                "drop_together": None if together is None else state["drop_together"][together].item(),
                "left_together": None if together is None else state["left_together"][together].item(),
                "holds": at < needed,
            }
        )
    return rows


def canary_columns(exposures: Sequence[Exposure]) -> Columns:
    """The columns of canaries.parquet."""
    return _by_column(
        [
            {
                "canary": number,
                **{name: getattr(each.canary, name) for name in ("before", "secret", "after", "space")},
                **{
                    name: getattr(each, name)
                    for name in ("log_perplexity", "candidates", "rank", "all_candidates", "exposure")
                },
                "exposure_modelled": each.modelled,
            }
            for number, each in enumerate(exposures, start=1)
        ]
    )


def _by_column(rows: Sequence[Mapping[str, Any]]) -> Columns:
    """Rows as columns; none for no rows."""
    return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
