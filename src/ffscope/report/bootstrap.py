"""95 % intervals by bootstrap, each drawn from the exact distribution of the resampled statistic, so that none needs a loop.

A share of n yes-or-no rows, resampled with replacement, is a binomial number over n. The k-th of n resampled values is the value
whose rank is a beta-distributed share of n. Only clusters (the triggers of a memory) and rows whose
correlation or concentration is wanted are resampled one by one.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ffscope.axes import Array

DRAWS, _AT_ONCE = 2000, 100
_FEW_DRAWS = 400  # of statistics that need a loop
_ENDS = (0.025, 0.975)


Interval = tuple[float, float]


def share(hits: int, count: int, generator: np.random.Generator) -> Interval:
    """The interval of a share of rows."""
    return _interval(generator.binomial(count, hits / count, DRAWS) / count)


def median(values: Array, generator: np.random.Generator) -> Interval:
    """The interval of a median: of the middle value, or the lower of the two in the middle."""
    count = len(values)
    k = (count + 1) // 2
    ranks = np.minimum(generator.beta(k, count - k + 1, DRAWS) * count, count - 1).astype(np.int64)
    return _interval(np.sort(values)[ranks])


def mean_of_clusters(sums: Array, counts: Array, generator: np.random.Generator) -> Interval | tuple[None, None]:
    """The interval of a mean over rows in clusters, from each cluster's sum and count; whole clusters are resampled.

    A resample without rows has no mean; without any rows there is no interval.
    """
    if not counts.any():
        return None, None
    # A few resamples at a time, since a model may have 100,000 memories.
    means = []
    for _ in range(0, DRAWS, _AT_ONCE):
        picked = generator.integers(len(sums), size=(_AT_ONCE, len(sums)))
        totals, rows = sums[picked].sum(1), counts[picked].sum(1)
        means.append(totals[rows > 0] / rows[rows > 0])
    return _interval(np.concatenate(means))


def statistic(rows: Array, function: Callable[[Array], float], generator: np.random.Generator) -> Interval:
    """The interval of any statistic of rows, which is computed for every resample; those where it is not defined are left out."""
    picks = (generator.integers(len(rows), size=len(rows)) for _ in range(_FEW_DRAWS))
    drawn = np.array([function(rows[picked]) for picked in picks])
    return _interval(drawn[~np.isnan(drawn)]) if not np.isnan(drawn).all() else (np.nan, np.nan)


def _interval(drawn: Any) -> Interval:
    low, high = np.quantile(drawn, _ENDS)
    return float(low), float(high)
