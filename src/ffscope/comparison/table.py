"""Columns of the table of a comparison: the change of what memories write, and the top tokens of values."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ffscope.axes import Array, Float, Int
from ffscope.study.folder import Study


def change_of(
    before: Float[Array, "memory"], after: Float[Array, "memory"], product: Float[Array, "memory"], memories: list[int]
) -> Float[Array, "memory"]:
    """√(E‖after - before‖² / S) of what each memory writes, m·v.

    `before` and `after` are the mean squares E‖m·v‖², `product` the mean of (m·v before)·(m·v after). S is the mean over the two
    models of the layer's sum of E‖m·v‖², each memory's partner standing for it in the model before.
    """
    change = np.maximum(before + after - 2 * np.where(before > 0, product, 0.0), 0)
    # Where the two are equal up to rounding, their difference is rounding.
    change[change < 1e-12 * (before + after)] = 0
    for start, count in zip(np.cumsum([0, *memories[:-1]]).tolist(), memories, strict=True):
        layer = slice(start, start + count)
        total = (before[layer].sum() + after[layer].sum()) / 2
        change[layer] = np.sqrt(change[layer] / total) if total > 0 else 0
    return change


class TopTokens(NamedTuple):
    """The first tokens that the value of every memory of a model promotes, memory × place; -1 without an unembedding."""

    tokens: Int[Array, "memory place"]

    @property
    def first(self) -> Int[Array, "memory"]:
        """The top token of every value."""
        return self.tokens[:, 0]

    def of(self, memories: Int[Array, "some"]) -> Int[Array, "some place"]:
        """Those of some memories; -1 for the memory -1."""
        return np.where((memories < 0)[:, None], -1, self.tokens[memories])

    def lists(self, memories: Int[Array, "some"]) -> list[list[int] | None]:
        """The same as lists; None for none."""
        return [row if row[0] >= 0 else None for row in self.of(memories).tolist()]


def top_tokens(study: Study, memories: list[int], most: int) -> TopTokens:
    """The first tokens of all values of a study."""
    table = pq.read_table(study.path("values.parquet"), columns=["layer", "memory", "top_tokens"])
    number = np.cumsum([0, *memories])[table["layer"].to_numpy()] + table["memory"].to_numpy()
    rows = [row[:most] if row else [-1] for row in table["top_tokens"].to_pylist()]
    longest = max(map(len, rows))
    tokens = np.full((sum(memories), longest), -1, dtype=np.int64)
    tokens[number] = np.array([row + [-1] * (longest - len(row)) for row in rows])
    return TopTokens(tokens)


def nullable(numbers: Float[Array, "memory"]) -> Any:
    """A column with null for NaN."""
    return pa.array(numbers, from_pandas=True)
