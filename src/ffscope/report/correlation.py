"""Correlations of two columns."""

import numpy as np

from ffscope.axes import Array

EFFECT_DECIMALS = 6
"""Effects below a millionth of a nat are rounding errors of the loss."""


def pearson(rows: Array) -> float:
    """The correlation of the two columns of rows; NaN if one of them is constant."""
    first, second = (rows - rows.mean(0)).T
    size = np.sqrt((first @ first) * (second @ second))
    return float(first @ second / size) if size > 0 else np.nan


def spearman(rows: Array) -> float:
    """The rank correlation of the two columns of rows; equal numbers share their mean rank."""
    return pearson(np.stack([ranks(column) for column in rows.T], 1))


def slope(rows: Array) -> float:
    """The slope of the least-squares line from the first column to the second; NaN if the first is constant."""
    first, second = (rows - rows.mean(0)).T
    size = first @ first
    return float(first @ second / size) if size > 0 else np.nan


def ranks(column: Array) -> Array:
    """The ranks of numbers, from 1; equal ones have the mean of their ranks."""
    _, group, counts = np.unique(column, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[group]
