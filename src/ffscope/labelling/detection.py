"""How well a label distinguishes held-back triggers from random prefixes."""

from math import comb


def balanced_accuracy(hits: int, triggers: int, *, alarms: int, others: int) -> float:
    """The mean of the share of triggers that a label fits and the share of other prefixes that it does not fit; 0.5 is chance."""
    return (hits / triggers + (others - alarms) / others) / 2


def p_value(hits: int, triggers: int, *, alarms: int, others: int) -> float:
    """One-sided Fisher's exact test: the probability of at least this many hits if the fits were assigned at random."""
    fits = hits + alarms
    ways = sum(comb(triggers, i) * comb(others, fits - i) for i in range(hits, min(fits, triggers) + 1))
    return ways / comb(triggers + others, fits)
