"""How much a memory's firing depends on the position (Voita et al. 2023, section 5)."""

from typing import NamedTuple

import numpy as np

from ffscope.axes import Array, Bool, Float, Int
from ffscope.memory_types.firing import Prefixes


class Window(NamedTuple):
    """The first positions of the sentences that have all of them, so that every position has equally many prefixes."""

    positions: int
    sentences: int


def choose_window(lengths: Int[Array, "sentence"], *, positions: int, sentences: int) -> Window | None:
    """`positions`, or the most that as many sentences as `sentences` have; None if these have only one."""
    if len(lengths) < sentences:
        return None
    longest = np.sort(lengths)[::-1]
    positions = min(positions, int(longest[sentences - 1]))
    return Window(positions, int((lengths >= positions).sum())) if positions > 1 else None


def prefixes_in(window: Window, prefixes: Prefixes) -> Int[Array, "prefix"]:
    """The numbers of the window's prefixes, position by position."""
    inside = np.flatnonzero((prefixes.lengths >= window.positions) & (prefixes.positions < window.positions))
    return inside[np.argsort(prefixes.positions[inside], kind="stable")]


def mutual_information(
    fired: Bool[Array, "memory prefix"], inside: Int[Array, "some"], window: Window
) -> Float[Array, "memory"]:
    """The mutual information between firing and position, in nats."""
    by_position = fired[:, inside].reshape(len(fired), window.positions, window.sentences)
    shares = by_position.mean(-1)
    return np.maximum(entropy(shares.mean(1)) - entropy(shares).mean(1), 0.0)  # rounding may go below 0


def entropy(share: Float[Array, "*at"]) -> Float[Array, "*at"]:
    """The entropy of yes or no with this share of yes, in nats."""
    yes, no = (part * np.log(np.where(part > 0, part, 1.0)) for part in (share, 1 - share))
    return -(yes + no)
