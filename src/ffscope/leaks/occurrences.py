"""How often token sequences, and their parts, occur in a text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ffscope.axes import Array
from ffscope.corpus.batches import Chunk

CONTEXT = 4
"""How many tokens before an occurrence are its context."""
_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no token is lost in the hash


@dataclass
class Occurrences:
    """Of one sequence: at how many places it occurs, in which contexts, and how often each of its parts occurs elsewhere.

    Parts are its windows of a few tokens. Elsewhere is in sentences that do not have the whole sequence.
    """

    parts: Array
    places: int = 0
    contexts: set[tuple[int, ...]] = field(default_factory=set)

    def others(self, context: tuple[int, ...]) -> int:
        """In how many contexts other than this one it occurs."""
        return len(self.contexts - {context})

    def common(self, least: int) -> float:
        """The share of its parts that occur at least so often elsewhere."""
        return float(np.mean(self.parts >= least))


def context_of(tokens: Array, start: int) -> tuple[int, ...]:
    """The context of a place in a sentence."""
    return tuple(tokens[max(0, start - CONTEXT) : start].tolist())


def count_occurrences(sequences: Sequence[Array], chunks: Iterable[Chunk], part: int) -> list[Occurrences]:
    """The occurrences of sequences in a text; each has at least `part` tokens, the length of its parts."""
    hashes = [hash_windows(sequence, part) for sequence in sequences]
    wanted = np.unique(np.concatenate(hashes)) if hashes else np.empty(0, dtype=np.uint64)
    places = [np.searchsorted(wanted, row) for row in hashes]
    by_first: dict[int, list[int]] = {}
    for number, row in enumerate(places):
        by_first.setdefault(int(row[0]), []).append(number)
    counts = np.zeros(len(wanted), dtype=np.int64)
    results = [Occurrences(np.zeros(len(row), dtype=np.int64)) for row in places]
    for chunk in chunks if len(wanted) else ():
        for tokens in np.split(chunk.tokens, np.cumsum(chunk.lengths)[:-1]):
            known, hits = _known_windows(tokens, part, wanted)
            np.add.at(counts, known, 1)
            for number in _add_whole(tokens, known, hits, by_first, sequences, results):
                # Taken away here, and added with all others below.
                results[number].parts -= np.bincount(known, minlength=len(wanted))[places[number]]
    for result, row in zip(results, places, strict=True):
        result.parts += counts[row]
    return results


def _known_windows(tokens: Array, part: int, wanted: Array) -> tuple[Array, Array]:
    """The windows of a sentence that are wanted: their numbers among these, and where they are."""
    hashes = hash_windows(tokens, part)
    at = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    hits = np.flatnonzero(wanted[at] == hashes)
    return at[hits], hits


def _add_whole(
    tokens: Array,
    known: Array,
    hits: Array,
    by_first: dict[int, list[int]],
    sequences: Sequence[Array],
    results: list[Occurrences],
) -> set[int]:
    """Add the places of whole sequences in a sentence; returns which occur in it."""
    present = set()
    for window, start in zip(known.tolist(), hits.tolist(), strict=True):
        for number in by_first.get(window, ()):
            sequence = sequences[number]
            if np.array_equal(tokens[start : start + len(sequence)], sequence):
                results[number].places += 1
                results[number].contexts.add(context_of(tokens, start))
                present.add(number)
    return present


def hash_windows(tokens: Array, size: int) -> Array:
    """A 64-bit hash of every window of so many tokens."""
    numbers = np.asarray(tokens).astype(np.uint64) + np.uint64(1)
    hashes = np.zeros(max(0, len(numbers) - size + 1), dtype=np.uint64)
    for offset in range(size):
        hashes = hashes * _FACTOR + numbers[offset : offset + len(hashes)]
        hashes ^= hashes >> np.uint64(29)
    return hashes


def repeated(tokens: Array, start: int, part: int) -> float:
    """The share of the parts from `start` to the end of a sentence that also occur earlier in it."""
    hashes = hash_windows(tokens, part)
    earlier: set[int] = set(hashes[:start].tolist())
    hits = []
    for value in hashes[start:].tolist():
        hits.append(value in earlier)
        earlier.add(value)
    return float(np.mean(hits)) if hits else 0.0
