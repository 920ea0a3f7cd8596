"""Sets of prefixes as the bits of an integer."""

import numpy as np

from ffscope.axes import Array


def set_bits(bits: int) -> list[int]:
    """The indices of the bits that are set."""
    return [bit for bit in range(bits.bit_length()) if bits >> bit & 1]


def bits_of(mask: Array) -> Array:
    """Rows of booleans as bits."""
    places = np.left_shift(np.uint64(1), np.arange(mask.shape[1], dtype=np.uint64))
    return np.bitwise_or.reduce(np.where(mask, places, np.uint64(0)), axis=1)


def mask_of(bits: Array, width: int) -> Array:
    """Bits as rows of booleans."""
    return (bits[:, None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)).astype(bool)
