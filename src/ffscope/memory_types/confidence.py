"""Values that change the norm of the residual more than the logits (Stolfo et al. 2024)."""

import numpy as np

from ffscope.axes import Array, Float


def percentiles(numbers: Float[Array, "memory"]) -> Float[Array, "memory"]:
    """For each number, the share of the numbers that are lower; NaN for NaN."""
    known = np.sort(numbers[~np.isnan(numbers)])
    shares = np.searchsorted(known, numbers) / max(len(known), 1)
    return np.where(np.isnan(numbers), np.nan, shares)


def through_norm(direct: Float[Array, "memory"], norm: Float[Array, "memory"]) -> Float[Array, "memory"]:
    """The share of the effect on the loss that runs through the final norm's scale; NaN without any effect."""
    with np.errstate(invalid="ignore"):
        return norm / (norm + direct)
