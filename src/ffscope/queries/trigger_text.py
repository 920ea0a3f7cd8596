"""Which triggers hold a text. A search goes through every trigger of every memory, so where they are is kept as plain arrays."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ffscope.axes import Array

_NOWHERE = np.iinfo(np.int32).max


@dataclass(frozen=True)
class TriggerText:
    """Every trigger in the order layer, memory, rank: its sentence, and how many characters of that it has seen."""

    sentence: Array
    reach: Array
    first: Array  # where each memory's triggers begin
    layer: Array
    memory: Array

    @classmethod
    def read(cls, tables: Any) -> "TriggerText":
        """From a study's tables. Where the tokenizer does not say where its tokens are, a trigger has seen its whole sentence."""
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

    def holding(self, tables: Any, text: str) -> pa.Table:
        """The memories with a trigger that holds this text, whatever its case: how many do, and the rank of the first."""
        # Lowered by the same hand as the text: others make two letters of one.
        query = "SELECT sentence, strpos(text, lower($text)) AS start, length(lower($text)) AS length FROM lowered WHERE start > 0"
        found = tables.execute(query, {"text": text}).fetchnumpy()
        sentences = np.asarray(found["sentence"])
        if not len(sentences) or not len(self.sentence):
            return _answer(*(np.zeros(0, np.int32) for _ in range(4)))
        # A sentence holds it by its first occurrence: the character at which that ends, by sentence.
        ends = np.full(int(max(sentences.max(), self.sentence.max())) + 1, _NOWHERE, dtype=np.int32)
        ends[sentences] = np.asarray(found["start"]) + np.asarray(found["length"]) - 1
        holds = ends[self.sentence] <= self.reach
        hits = np.add.reduceat(holds, self.first, dtype=np.int32)
        here = hits > 0
        # Ranks count from 1 within a memory: from its first trigger to the first that holds the text.
        at = np.flatnonzero(holds)
        best = at[np.searchsorted(at, self.first[here])] - self.first[here] + 1
        return _answer(self.layer[here], self.memory[here], hits[here], best)


def _answer(layer: Array, memory: Array, hits: Array, best: Array) -> pa.Table:
    columns = {"layer": layer, "memory": memory, "hits": hits, "best": best}
    return pa.table({name: pa.array(column, pa.int32()) for name, column in columns.items()})
