"""Finds the triggers that contain a text. A search visits every trigger of every memory, so their places are plain arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ffscope.axes import Array

_NOWHERE = np.iinfo(np.int32).max


@dataclass(frozen=True)
class TriggerText:
    """Every trigger in the order layer, memory, rank: its sentence, and the number of characters of the sentence up to its end."""

    sentence: Array
    reach: Array
    first: Array  # index of each memory's first trigger
    layer: Array
    memory: Array

    @classmethod
    def read(cls, tables: Any) -> "TriggerText":
        """From a study's tables. If the tokenizer gives no offsets, a trigger is assumed to contain its whole sentence."""
        rows = tables.execute(
            """
            SELECT layer, memory, sentence, coalesce(ends[position + 1], length(text))::INT AS reach
            FROM triggers JOIN sentences USING (sentence) ORDER BY layer, memory, rank
            """
        ).fetchnumpy()
        layer, memory = np.asarray(rows["layer"]), np.asarray(rows["memory"])
        starts = np.ones(len(layer), dtype=bool)
        starts[1:] = (layer[1:] != layer[:-1]) | (memory[1:] != memory[:-1])
        first = np.flatnonzero(starts)
        return cls(np.asarray(rows["sentence"]), np.asarray(rows["reach"]), first, layer[first], memory[first])

    def containing(self, tables: Any, text: str) -> pa.Table:
        """The memories with triggers that contain this text, ignoring case: their number, and the rank of the first."""
        # Lower-cased by duckdb like the sentences, since other implementations may give a different number of letters.
        query = "SELECT sentence, strpos(text, lower($text)) AS start, length(lower($text)) AS length FROM lowered WHERE start > 0"
        occurrences = tables.execute(query, {"text": text}).fetchnumpy()
        sentences = np.asarray(occurrences["sentence"])
        if not len(sentences) or not len(self.sentence):
            return _table(*(np.zeros(0, np.int32) for _ in range(4)))
        # The character at which the first occurrence ends, by sentence.
        ends = np.full(int(max(sentences.max(), self.sentence.max())) + 1, _NOWHERE, dtype=np.int32)
        ends[sentences] = np.asarray(occurrences["start"]) + np.asarray(occurrences["length"]) - 1
        contains = ends[self.sentence] <= self.reach
        hits = np.add.reduceat(contains, self.first, dtype=np.int32)
        matched = hits > 0
        # Ranks count from 1 within a memory, so the difference from its first trigger gives the rank of the first match.
        matching = np.flatnonzero(contains)
        best = matching[np.searchsorted(matching, self.first[matched])] - self.first[matched] + 1
        return _table(self.layer[matched], self.memory[matched], hits[matched], best)


def _table(layer: Array, memory: Array, hits: Array, best: Array) -> pa.Table:
    columns = {"layer": layer, "memory": memory, "hits": hits, "best": best}
    return pa.table({name: pa.array(column, pa.int32()) for name, column in columns.items()})
