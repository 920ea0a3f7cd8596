"""Surface forms that the triggers of a memory share, each compared with its frequency in the corpus."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import CLASS_OF, SHALLOW, Candidates, Form, Rates, find_candidates
from ffscope.patterns.pattern import LEAST, MOST
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.significance import corrected, log_tail, log_tails

LEVEL = 0.01  # the probability that random prefixes get any shallow pattern
_MOST_OF = 0.6
_OFTEN = 2  # longer word sequences that are named
_FURTHEST = 4  # words before the last that a form may determine
# Forms of the same prefixes are equivalent unless one is this many times as frequent as the other.
_EQUIVALENT, _EQUIVALENT_TOKEN = 1.25, 3.0


@dataclass(frozen=True)
class Triggers:
    """The triggers of a layer's memories: one prefix per row, with its memory and its bit there."""

    prefixes: Prefixes
    memory: Array
    bit: Array

    @cached_property
    def tested(self) -> Array:
        """Per memory, the bits of the best prefix of every sentence; other prefixes of a sentence share its content anyway."""
        memories = int(self.memory.max()) + 1 if len(self.memory) else 0
        _, first = np.unique(self.memory.astype(np.int64) << 32 | self.prefixes.row, return_index=True)
        bits = np.zeros(memories, dtype=np.uint64)
        np.bitwise_or.at(bits, self.memory[first], np.left_shift(np.uint64(1), self.bit[first].astype(np.uint64)))
        return bits

    def lengths(self, words: int, width: int) -> Array:
        """The number of positions for a sequence of `words` words in each prefix, by memory and bit."""
        memories = int(self.memory.max()) + 1 if len(self.memory) else 0
        counts = np.zeros((memories, width))
        counts[self.memory, self.bit] = np.maximum(self.prefixes.last - (words - 1), 0)
        return counts


@dataclass(frozen=True)
class Shared:
    """A form that some prefixes of a memory share; `example` is a row that has it.

    `closest` is the rarest form that most of them have. `apart` are the bits of those that share no further content word in a
    fixed place with an earlier one.
    """

    form: Form
    code: int
    bits: int
    p_value: float
    example: int
    closest: tuple[Form, int]
    apart: int
    often: tuple["Shared", ...] = ()  # longer sequences that some of these end with, more often than by chance


def find_shared(triggers: Triggers, rates: Rates) -> dict[int, list[Shared]]:
    """The shared surface forms of every memory that has any, best first."""
    candidates = find_candidates(triggers.prefixes, triggers.memory, triggers.bit, SHALLOW, least=LEAST)
    tested = triggers.tested
    expected = expected_rates(candidates, triggers, rates)
    trials = np.bitwise_count(tested)[candidates.memory].astype(np.int64)
    hits = np.bitwise_count(candidates.bits & tested[candidates.memory]).astype(np.int64)
    chance = log_tails(trials, hits, expected)
    least_share = np.array([form.share for form in SHALLOW])[candidates.form]
    enough = (hits >= LEAST) & (hits >= least_share * trials)
    significant = enough & (chance + np.log(candidates.tried[candidates.memory]) <= np.log(LEVEL))
    chosen = np.flatnonzero(significant)
    chosen = chosen[np.lexsort((candidates.form[chosen], chance[chosen], candidates.memory[chosen]))]
    fixed = np.zeros((len(candidates.memory), _FURTHEST + 1), dtype=bool)
    fixed[chosen] = _fixed(triggers.prefixes, candidates, chosen)
    return {
        memory: _chosen(candidates, rows, chance, expected, int(tested[memory]), fixed[rows])
        for memory, rows in _runs(candidates.memory[chosen], chosen)
    }


def expected_rates(candidates: Candidates, triggers: Triggers, rates: Rates) -> Array:
    """The expected share of prefixes with each candidate, for prefixes of the lengths of its memory's triggers."""
    rate = rates.of(candidates.form, candidates.code)
    width = int(triggers.bit.max(initial=0)) + 1
    tested = triggers.tested[:, None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)
    for number, form in enumerate(rates.forms):
        of_form = candidates.form == number
        if form.words and of_form.any():
            places = triggers.lengths(form.words, width)[candidates.memory[of_form]]
            weight = tested[candidates.memory[of_form]].astype(np.float64)
            has = -np.expm1(places * np.log1p(-np.minimum(rate[of_form], 0.999))[:, None])
            rate[of_form] = (has * weight).sum(1) / np.maximum(weight.sum(1), 1)
    return rate


def _runs(keys: Array, rows: Array) -> Iterator[tuple[int, Array]]:
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(keys)][: len(starts)], strict=True):
        yield int(keys[start]), rows[start:stop]


def _chosen(
    candidates: Candidates, rows: Array, chance: Array, expected: Array, tested: int, fixed: Array
) -> list[Shared]:
    """The best form, then the best for the prefixes that remain, and so on, without forms that are part of another."""
    bits = [int(candidates.bits[row]) for row in rows]
    rate = [float(expected[row]) for row in rows]
    tried = int(candidates.tried[candidates.memory[rows[0]]])
    logs = [float(chance[row]) for row in rows]
    picked: list[int] = []
    remaining = tested
    while len(picked) < MOST and remaining.bit_count() >= LEAST:
        best, i = min((_remaining_log_p(bits[i], remaining, rate[i], logs[i], tested), i) for i in range(len(rows)))
        if best + log(tried) > log(LEVEL):
            break
        factor = _EQUIVALENT_TOKEN if SHALLOW[candidates.form[rows[i]]].name == "token" else _EQUIVALENT
        equivalent = [j for j in range(len(rows)) if bits[j] == bits[i] and rate[j] <= factor * rate[i]]
        picked.append(
            min(
                equivalent,
                key=lambda j: (int(candidates.form[rows[j]]), CLASS_OF.get(int(candidates.code[rows[j]]), 0), j),
            )
        )
        remaining &= ~bits[i]

    def shared(i: int, often: tuple[Shared, ...] = ()) -> Shared:
        row, own_form = rows[i], (SHALLOW[candidates.form[rows[i]]], int(candidates.code[rows[i]]))
        closest, apart = _closest(candidates, rows, bits[i], rate), _apart(candidates, rows, i, fixed)
        return Shared(
            *own_form, bits[i], corrected(logs[i], tried), int(candidates.example[row]), closest, apart, often
        )

    longer = {i: _longer(candidates, rows, i, rate, tried) for i in picked}
    nested = {j for i in picked for j in longer[i]}
    return [shared(i, tuple(shared(j) for j in longer[i][:_OFTEN])) for i in picked if i not in nested]


def _longer(candidates: Candidates, rows: Array, chosen: int, rate: list[float], tried: int) -> list[int]:
    """The forms that extend a chosen one by words and that more of its prefixes have than by chance; no two overlap."""
    bits, fixes = int(candidates.bits[rows[chosen]]), set(SHALLOW[candidates.form[rows[chosen]]].fixes)
    used, chosen_rows = 0, []
    for j, row in enumerate(rows):
        candidate_bits, candidate_fixes = int(candidates.bits[row]), set(SHALLOW[candidates.form[row]].fixes)
        if (
            not fixes
            or not fixes < candidate_fixes
            or candidate_bits & ~bits
            or candidate_bits & used
            or candidate_bits == bits
        ):
            continue
        chance = log_tail(bits.bit_count(), candidate_bits.bit_count(), min(rate[j] / rate[chosen], 0.99))
        if chance + log(tried) <= log(LEVEL):
            used |= candidate_bits
            chosen_rows.append(j)
    return chosen_rows


def _closest(candidates: Candidates, rows: Array, bits: int, rate: list[float]) -> tuple[Form, int]:
    """The rarest form in a fixed place that most of these prefixes have; it best explains what else they share."""
    shared = [
        (rate[j], j)
        for j, row in enumerate(rows)
        if (int(candidates.bits[row]) & bits).bit_count() >= _MOST_OF * bits.bit_count()
        and not SHALLOW[candidates.form[row]].words
    ]
    row = rows[min(shared)[1]] if shared else rows[0]
    return SHALLOW[candidates.form[row]], int(candidates.code[row])


def _apart(candidates: Candidates, rows: Array, chosen: int, fixed: Array) -> int:
    """The prefixes of a form; of those that share one more content word in a fixed place, only the first."""
    bits, own_fixed = int(candidates.bits[rows[chosen]]), fixed[chosen]
    for row, more in zip(rows, (fixed & ~own_fixed).any(1), strict=True):
        common = int(candidates.bits[row]) & bits
        if more:
            bits &= ~(common & (common - 1))  # all but the lowest bit
    return bits


def _fixed(prefixes: Prefixes, candidates: Candidates, rows: Array) -> Array:
    """For each candidate, by distance from the last word: whether it determines a content word there."""
    examples, is_content = prefixes.take(candidates.example[rows]), prefixes.sentences.lexicon.content
    words = [examples.word, *(examples.before(distance) for distance in range(1, _FURTHEST + 1))]
    content = np.stack([is_content[word] & (word >= 0) for word in words], 1)
    fixes = np.array([[far in form.fixes for far in range(_FURTHEST + 1)] for form in SHALLOW])
    return content & fixes[candidates.form[rows]]


def _remaining_log_p(bits: int, remaining: int, rate: float, whole: float, tested: int) -> float:
    """The log-probability that the remaining prefixes share a form by chance."""
    if remaining == tested:
        return whole
    hits = (bits & remaining).bit_count()
    return log_tail(remaining.bit_count(), hits, rate) if hits >= LEAST else 0.0
