"""How much of a corpus can be searched in a given time."""

import time
from collections.abc import Iterator
from pathlib import Path

from ffscope.corpus.batches import Batch, batches
from ffscope.corpus.prefixes import chunks
from ffscope.search.execute import Search

_TRIED = 24  # sentences
_CAUTION = 0.9  # of the time is planned for: a machine may grow slower


def affordable(trial: Search, sentences: Path, *, seconds: float, tokens: int) -> int:
    """How many of the first sentences a search like `trial` gets through, at the pace of a few of them; one at least."""
    pace = _prefixes_a_second(trial, sentences, tokens)
    left, count = seconds * _CAUTION * pace, 0
    for chunk in chunks(sentences):
        for length in chunk.lengths.tolist():
            left -= length
            if left < 0:
                return max(1, count)
            count += 1
    return count


def _prefixes_a_second(trial: Search, sentences: Path, tokens: int) -> float:
    with trial.tapping():
        trial.run(next(_few(trial, sentences, tokens)))  # the first pass takes longer than any other
        start, prefixes = time.perf_counter(), 0
        for batch in _few(trial, sentences, tokens):
            trial.run(batch)
            prefixes += batch.tokens.size
        return prefixes / (time.perf_counter() - start)


def _few(trial: Search, sentences: Path, tokens: int) -> Iterator[Batch]:
    before = int(trial.bos is not None)
    return batches(chunks(sentences, first=_TRIED), tokens=tokens, before=before, rows=_TRIED)
