"""Texts that are read at their last token, run as seldom as can be."""

from typing import NamedTuple

import numpy as np

from ffscope.axes import Array


class Shared(NamedTuple):
    """The texts to run, and for each text that was asked for the run and the position in it that answer for it."""

    runs: list[Array]
    run: Array
    position: Array


def share(texts: list[Array], *, causal: bool) -> Shared:
    """Run equal texts once, and where no position sees what comes after it, a text that begins another not at all."""
    # Token ids as big-endian bytes sort as the ids do, so a text stands right before those that it begins.
    spelt = [text.astype(">u4").tobytes() for text in texts]
    order = sorted(range(len(texts)), key=spelt.__getitem__, reverse=True)
    run = np.empty(len(texts), dtype=np.int64)
    runs: list[int] = []
    for number in order:
        longer = spelt[runs[-1]] if runs else b""
        served = longer.startswith(spelt[number]) if causal else longer == spelt[number]
        if not served or not runs:
            runs.append(number)
        run[number] = len(runs) - 1
    position = np.array([len(text) - 1 for text in texts], dtype=np.int64)
    return Shared([texts[number] for number in runs], run, position)
