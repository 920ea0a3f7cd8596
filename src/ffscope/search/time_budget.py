"""How much text can be searched in a given time."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from ffscope.corpus.batches import Batch, batches
from ffscope.corpus.prefixes import chunks
from ffscope.corpus.reading import Reading
from ffscope.models.memory_model import MemoryModel
from ffscope.search.execute import Search

_TRIAL_SENTENCES = 24
_SAFETY = 0.9  # share of the time that is planned for: the machine may become slower


class Trial(NamedTuple):
    """A short search: its settings, and its batches."""

    settings: dict[str, Any]
    batches: list[Batch]


def affordable_sentences(
    measure: Callable[[Any, Trial], float],
    sentences: Reading,
    *,
    settings: dict[str, Any],
    seconds: float,
    tokens: int,
    before: int,
) -> int:
    """How many sentences a search can cover in this time; at least one. `measure` runs a trial and returns its rate."""
    first = chunks(sentences, first=_TRIAL_SENTENCES)
    trial = Trial(settings, list(batches(first, tokens=tokens, before=before, rows=_TRIAL_SENTENCES)))
    remaining, count = seconds * _SAFETY * measure(_prefixes_per_second, trial), 0
    for chunk in chunks(sentences):
        for length in chunk.lengths.tolist():
            remaining -= length
            if remaining < 0:
                return max(1, count)
            count += 1
    return count


def _prefixes_per_second(model: MemoryModel, trial: Trial) -> float:
    search = Search(model, **trial.settings)
    with search.tapping():
        search.run(trial.batches[0])  # warm-up: the first pass is slower
        start, prefixes = time.perf_counter(), 0
        for batch in trial.batches:
            search.run(batch)
            prefixes += batch.tokens.size
        return prefixes / (time.perf_counter() - start)
