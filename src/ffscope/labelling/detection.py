"""How well a label tells triggers that its author had not seen from random prefixes."""

from math import comb


def balanced_accuracy(hits: int, triggers: int, *, alarms: int, others: int) -> float:
    """The mean of the share of triggers that a label fits and the share of other prefixes that it does not; 0.5 is chance."""
    return (hits / triggers + (others - alarms) / others) / 2


def chance(hits: int, triggers: int, *, alarms: int, others: int) -> float:
    """The probability of as many hits or more, were the fits spread over all prefixes at random: Fisher's, one-sided."""
    fits = hits + alarms
    ways = sum(comb(triggers, some) * comb(others, fits - some) for some in range(hits, min(fits, triggers) + 1))
    return ways / comb(triggers + others, fits)
