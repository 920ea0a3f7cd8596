"""The triggers of paired memories: what share of them both have, and those of the partner, for the study of the other."""

from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq

from ffscope.axes import Array, Float, Int
from ffscope.study.folder import Study

_COLUMNS = ["layer", "memory", "rank", "coefficient", "sentence", "position"]


class Triggers(NamedTuple):
    """The triggers of a study, memory by memory; `start` has the first row of every memory, and the number of rows."""

    start: Int[Array, "bounds"]
    rank: Int[Array, "row"]
    coefficient: Float[Array, "row"]
    sentence: Int[Array, "row"]
    position: Int[Array, "row"]

    @classmethod
    def read(cls, study: Study, memories: list[int], top: int) -> "Triggers":
        """The first `top` of every memory."""
        table = pq.read_table(study.path("triggers.parquet"), columns=_COLUMNS, filters=[("rank", "<=", top)])
        columns = {name: table[name].to_numpy() for name in _COLUMNS}
        offsets = np.cumsum([0, *memories])
        number = offsets[columns["layer"]] + columns["memory"]
        order = np.lexsort((columns["rank"], number))
        start = np.searchsorted(number[order], np.arange(offsets[-1] + 1))
        return cls(start, *(columns[name][order] for name in _COLUMNS[2:]))

    def of(self, memories: Int[Array, "memory"]) -> tuple[Int[Array, "row"], Int[Array, "row"]]:
        """The rows of some memories (-1 for none), and for each row the place of its memory among them."""
        known = np.maximum(memories, 0)
        counts = np.where(memories < 0, 0, self.start[known + 1] - self.start[known])
        owner = np.repeat(np.arange(len(memories)), counts)
        within = np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)
        return self.start[known][owner] + within, owner


def kept(before: Triggers, after: Triggers, partner: Int[Array, "memory"]) -> Float[Array, "memory"]:
    """The Jaccard index of each memory's triggers and its partner's, as sets of prefixes; NaN where neither has any."""
    shares = np.full(len(partner), np.nan)
    for start in range(0, len(partner), 2**15):
        chunk = np.arange(start, min(start + 2**15, len(partner)))
        own, owner = after.of(chunk)
        others, of_partner = before.of(partner[chunk])
        prefixes = [
            (triggers.sentence[rows].astype(np.int64) << 32) + triggers.position[rows]
            for triggers, rows in ((after, own), (before, others))
        ]
        _, codes = np.unique(np.concatenate(prefixes), return_inverse=True)
        both = np.intersect1d((owner << 32) + codes[: len(own)], (of_partner << 32) + codes[len(own) :])
        shared, mine, theirs = (np.bincount(each, minlength=len(chunk)) for each in (both >> 32, owner, of_partner))
        union = mine + theirs - shared
        shares[chunk] = np.divide(shared, union, out=np.full(len(chunk), np.nan), where=union > 0)
    return shares


def copied(before: Triggers, partner: Int[Array, "memory"], most: int) -> tuple[Int[Array, "row"], dict[str, Array]]:
    """The first triggers of every memory's partner: for each row the memory's number, and its columns."""
    rows, owner = before.of(partner)
    first = before.rank[rows] <= most
    rows, owner = rows[first], owner[first]
    return owner, {name: getattr(before, name)[rows] for name in ("rank", "coefficient", "sentence", "position")}
