"""A coefficient and its prefix packed into one integer, so that comparing two integers compares two triggers.

The upper 32 bits are the coefficient: the bits of a positive float32, read as an integer, sort like the floats. The lower 32 bits
are the number of the prefix, negated. Prefixes are numbered by sentence, then position. So keys in descending order are triggers by
descending coefficient, then ascending sentence, then ascending position. No two prefixes have the same key, so there are no ties,
and the result does not depend on the order of merging.
"""

import torch
from torch import Tensor

from ffscope.axes import Float, Int

LAST_PREFIX = 2**32 - 1
EMPTY = 0
"""An empty key, less than that of any positive coefficient."""
LEAST = 1 << 32
"""A key of the least positive coefficient."""


def pack(coefficients: Float[Tensor, "*at"], prefixes: Int[Tensor, "*at"]) -> Int[Tensor, "*at"]:
    """The keys of positive coefficients and their prefixes' numbers."""
    return (coefficients.float().view(torch.int32).long() << 32) | (LAST_PREFIX - prefixes)


def coefficients_of(keys: Int[Tensor, "*at"]) -> Float[Tensor, "*at"]:
    """The coefficients; 0 for empty keys."""
    return (keys >> 32).int().view(torch.float32)


def prefixes_of(keys: Int[Tensor, "*at"]) -> Int[Tensor, "*at"]:
    """The prefixes' numbers."""
    return LAST_PREFIX - (keys & LAST_PREFIX)
