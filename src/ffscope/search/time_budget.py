"""How many sentences can be searched in a given time."""

import time
from collections.abc import Iterator

from ffscope.corpus.batches import Batch, batches
from ffscope.corpus.prefixes import chunks
from ffscope.corpus.reading import Reading
from ffscope.search.execute import Search

_TRIAL_SENTENCES = 24
_SAFETY = 0.9  # share of the time that is planned for: the machine may become slower


def affordable_sentences(trial: Search, sentences: Reading, *, seconds: float, tokens: int) -> int:
    """How many sentences a search like `trial` can cover in this time, estimated from a short run; at least one."""
    rate = _prefixes_per_second(trial, sentences, tokens)
    remaining, count = seconds * _SAFETY * rate, 0
    for chunk in chunks(sentences):
        for length in chunk.lengths.tolist():
            remaining -= length
            if remaining < 0:
                return max(1, count)
            count += 1
    return count


def _prefixes_per_second(trial: Search, sentences: Reading, tokens: int) -> float:
    with trial.tapping():
        trial.run(next(_trial_batches(trial, sentences, tokens)))  # warm-up: the first pass is slower
        start, prefixes = time.perf_counter(), 0
        for batch in _trial_batches(trial, sentences, tokens):
            trial.run(batch)
            prefixes += batch.tokens.size
        return prefixes / (time.perf_counter() - start)


def _trial_batches(trial: Search, sentences: Reading, tokens: int) -> Iterator[Batch]:
    before = int(trial.bos is not None)
    return batches(chunks(sentences, first=_TRIAL_SENTENCES), tokens=tokens, before=before, rows=_TRIAL_SENTENCES)
