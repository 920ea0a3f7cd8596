"""Splits paragraphs into sentences on the free cores of a cluster, in order."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import ray

from ffscope.corpus.readers import Label
from ffscope.corpus.sentences import Sentences, SentenceSplitter

_AHEAD = 2  # groups per core that are read ahead


def splitting_on(cores: int, splitter: SentenceSplitter) -> "_OnCluster":
    """What splits groups of paragraphs, one task per group."""
    return _OnCluster(cores, splitter)


class _OnCluster:
    """Tasks rather than ray.data: groups must come back in order, and what follows depends on all earlier ones (duplicates,
    held-out documents, the limit of sentences, where to resume). Ray repeats a task whose worker is lost.
    """

    def __init__(self, cores: int, splitter: SentenceSplitter) -> None:
        self._ahead = _AHEAD * cores
        self._splitter = ray.put(splitter)
        self._task: Any = ray.remote(_split).options(num_cpus=1, scheduling_strategy="SPREAD", max_retries=3)

    def split(self, groups: Iterable[tuple[Label, list[str]]]) -> Iterator[tuple[Label, Sentences]]:
        """The sentences of each group of paragraphs, with its label, in the order of the groups."""
        waiting: deque[tuple[Label, Any]] = deque()
        for label, texts in groups:
            waiting.append((label, self._task.remote(self._splitter, texts)))
            if len(waiting) >= self._ahead:
                label, ref = waiting.popleft()
                yield label, ray.get(ref)
        for label, ref in waiting:
            yield label, ray.get(ref)


def _split(splitter: SentenceSplitter, texts: list[str]) -> Sentences:
    return splitter.split(texts)
