"""The probability that this many prefixes share something by chance."""

from math import exp, lgamma, log, log1p

import numpy as np

from ffscope.axes import Array

SMALLEST = 1e-300  # smaller probabilities are recorded as this


def log_tail(count: int, hits: int, rate: float) -> float:
    """The logarithm of P(X ≥ hits) for a binomial X with `count` trials at `rate`."""
    if hits <= 0:
        return 0.0
    rate = min(rate, 1 - 1e-12)
    first = lgamma(count + 1) - lgamma(hits + 1) - lgamma(count - hits + 1) + hits * log(rate)
    first += (count - hits) * log1p(-rate)
    term = total = 1.0
    for i in range(hits + 1, count + 1):
        term *= (count - i + 1) / i * rate / (1 - rate)
        total += term
    return min(first + log(total), 0.0)


def log_tails(count: Array, hits: Array, rate: Array) -> Array:
    """`log_tail` of arrays."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, max(int(count.max(initial=1)), 1) + 1)))])
    rate = np.clip(rate, 1e-12, 1 - 1e-12)
    first = logs[count] - logs[hits] - logs[count - hits] + hits * np.log(rate) + (count - hits) * np.log1p(-rate)
    term, total = np.ones(len(rate)), np.ones(len(rate))
    for step in range(1, int((count - hits).max(initial=0)) + 1):
        left = np.maximum(count - hits - step + 1, 0)
        term = term * left / (hits + step) * rate / (1 - rate)
        total += term
    return np.minimum(first + np.log(total), 0.0)


def corrected(logarithm: float, tried: int) -> float:
    """The Bonferroni-corrected probability of the best of `tried` candidates."""
    return min(1.0, max(exp(max(logarithm, -690.0)) * tried, SMALLEST))
