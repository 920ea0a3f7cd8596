"""A coefficient and its prefix as one whole number, so that comparing two numbers is comparing two triggers.

The upper 32 bits hold the coefficient: the bits of a positive float32, read as a whole number, are in the order of the floats. The
lower ones hold the prefix's number, counted backwards. Numbers of prefixes run through the sentences, and within one through its
positions. So the larger key is the trigger that comes first: coefficient down, then sentence up, then position up. No two prefixes
have the same key, hence no order of merging, and no tie that a sort may break as it likes, changes what is kept.
"""

import torch
from torch import Tensor

from ffscope.axes import Float, Int

LAST_PREFIX = 2**32 - 1
EMPTY = 0
"""Less than the key of any coefficient above 0."""


def pack(coefficients: Float[Tensor, "*at"], prefixes: Int[Tensor, "*at"]) -> Int[Tensor, "*at"]:
    """Keys of coefficients above 0 and their prefixes' numbers."""
    return (coefficients.float().view(torch.int32).long() << 32) | (LAST_PREFIX - prefixes)


def coefficients_of(keys: Int[Tensor, "*at"]) -> Float[Tensor, "*at"]:
    """The coefficients; 0 where there is none."""
    return (keys >> 32).int().view(torch.float32)


def prefixes_of(keys: Int[Tensor, "*at"]) -> Int[Tensor, "*at"]:
    """The prefixes' numbers."""
    return LAST_PREFIX - (keys & LAST_PREFIX)
