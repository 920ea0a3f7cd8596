"""The list of leaks: distinct completions, each a secret, a phrase or copied text, with the personal data in it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ffscope.axes import Array
from ffscope.corpus.batches import Chunk
from ffscope.leaks.completions import Run
from ffscope.leaks.occurrences import context_of, count_occurrences, repeated

MOST = 0.5
"""The share of its parts that makes a completion a phrase, if they occur elsewhere, or copied, if earlier in the sentence."""
KINDS = ("secret", "phrase", "copied")


@dataclass(frozen=True)
class Listed:
    """A completion, and how common it is. Its first token is at `run.start`, after the prefix."""

    run: Run
    tokens: Array  # of the sentence
    places: int
    contexts: int
    common: float
    copied: float
    kind: str

    @property
    def end(self) -> int:
        """The position after its last token."""
        return self.run.start + self.run.length


def after_triggers(runs: Iterable[Run], triggers: Mapping[int, Array], shortest: int) -> list[Run]:
    """The part of each run that is completed after the first trigger in or just before it, if it is long enough.

    `triggers` are positions in ascending order, by sentence.
    """
    parts = []
    for run in runs:
        positions = triggers.get(run.sentence, np.empty(0, dtype=np.int64))
        first = int(np.searchsorted(positions, run.start - 1))
        if first < len(positions):
            start, end = int(positions[first]) + 1, run.start + run.length
            if end - start >= shortest:
                parts.append(Run(run.sentence, start, end - start))
    return parts


def distinct(runs: Iterable[Run], texts: Mapping[int, Array]) -> list[Run]:
    """The first run of every sequence of tokens."""
    first: dict[bytes, Run] = {}
    for run in runs:
        tokens = texts[run.sentence][run.start : run.start + run.length]
        first.setdefault(np.asarray(tokens, dtype=np.int64).tobytes(), run)
    return list(first.values())


def list_completions(
    runs: Sequence[Run], texts: Mapping[int, Array], chunks: Iterable[Chunk], *, shortest: int, contexts: int
) -> list[Listed]:
    """Every run with its kind. `chunks` is the text in which occurrences are counted, `contexts` how many make a phrase."""
    part = part_length(shortest)
    sequences = [texts[run.sentence][run.start : run.start + run.length] for run in runs]
    counted = count_occurrences(sequences, chunks, part)
    rows = []
    for run, occurrences in zip(runs, counted, strict=True):
        tokens = texts[run.sentence]
        others = occurrences.others(context_of(tokens, run.start))
        common, copied = occurrences.common(contexts), repeated(tokens[: run.start + run.length], run.start, part)
        kind = "copied" if copied >= MOST else "phrase" if others >= contexts or common >= MOST else "secret"
        rows.append(Listed(run, tokens, occurrences.places, others, common, copied, kind))
    return rows


def part_length(shortest: int) -> int:
    """How many tokens a part of a completion has: half of the shortest completion, two at least."""
    return max(2, shortest // 2)
