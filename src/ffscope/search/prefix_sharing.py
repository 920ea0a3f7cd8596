"""Runs texts that share prefixes once, when only their last token matters."""

from typing import NamedTuple

import numpy as np

from ffscope.axes import Array


class SharedRuns(NamedTuple):
    """The texts to run, and for each original text the run and the position in it that has its last token."""

    runs: list[Array]
    run: Array
    position: Array


def share_prefixes(texts: list[Array], *, causal: bool) -> SharedRuns:
    """Run equal texts once; in a causal model, a text that is a prefix of another is covered by that one."""
    # Big-endian bytes sort like the token ids, so a text comes right before those it is a prefix of.
    encoded = [text.astype(">u4").tobytes() for text in texts]
    order = sorted(range(len(texts)), key=encoded.__getitem__, reverse=True)
    run = np.empty(len(texts), dtype=np.int64)
    runs: list[int] = []
    for number in order:
        longer = encoded[runs[-1]] if runs else b""
        covered = longer.startswith(encoded[number]) if causal else longer == encoded[number]
        if not covered or not runs:
            runs.append(number)
        run[number] = len(runs) - 1
    position = np.array([len(text) - 1 for text in texts], dtype=np.int64)
    return SharedRuns([texts[number] for number in runs], run, position)
