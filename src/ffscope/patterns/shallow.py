"""Surface forms that the triggers of a memory share, each held against how often it occurs in the text at large."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import log

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import CLASS_OF, SHALLOW, Candidates, Form, Rates, gather
from ffscope.patterns.pattern import LEAST, MOST
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.significance import corrected, tail, tails

LEVEL = 0.01  # the chance that prefixes drawn at random are given any shallow pattern
_MOST_OF = 0.6
_OFTEN = 2  # longer runs of words that are named
_FURTHEST = 4  # words before the last that a form may fix
_ALIKE, _ALIKE_TOKEN = (
    1.25,
    3.0,
)  # a form says the same as another of the same prefixes unless it is so many times as frequent


@dataclass(frozen=True)
class Triggers:
    """The triggers of the memories of a layer: one prefix to a row, the memory it belongs to, and which bit it is there."""

    prefixes: Prefixes
    memory: Array
    bit: Array

    @cached_property
    def tested(self) -> Array:
        """Of each memory, the bits of the best prefix of every sentence: others of the sentence share what it says anyway."""
        memories = int(self.memory.max()) + 1 if len(self.memory) else 0
        _, first = np.unique(self.memory.astype(np.int64) << 32 | self.prefixes.row, return_index=True)
        found = np.zeros(memories, dtype=np.uint64)
        np.bitwise_or.at(found, self.memory[first], np.left_shift(np.uint64(1), self.bit[first].astype(np.uint64)))
        return found

    def lengths(self, words: int, width: int) -> Array:
        """How many places each prefix has for so many words, by memory and bit."""
        memories = int(self.memory.max()) + 1 if len(self.memory) else 0
        found = np.zeros((memories, width))
        found[self.memory, self.bit] = np.maximum(self.prefixes.last - (words - 1), 0)
        return found


@dataclass(frozen=True)
class Shared:
    """A form that some prefixes of a memory share; `example` is a row that has it.

    `closest` is the rarest form that most of them have; `apart` are those that no other content word ties to another of them.
    """

    form: Form
    code: int
    bits: int
    p_value: float
    example: int
    closest: tuple[Form, int]
    apart: int
    often: tuple["Shared", ...] = ()  # longer runs of words that some of these end with, more than chance would have it


def find_shared(triggers: Triggers, rates: Rates) -> dict[int, list[Shared]]:
    """The surface forms of every memory that has any, best first."""
    found = gather(triggers.prefixes, triggers.memory, triggers.bit, SHALLOW, least=LEAST)
    tested = triggers.tested
    expected = expected_rates(found, triggers, rates)
    trials = np.bitwise_count(tested)[found.memory].astype(np.int64)
    hits = np.bitwise_count(found.bits & tested[found.memory]).astype(np.int64)
    chance = tails(trials, hits, expected)
    share = np.array([form.share for form in SHALLOW])[found.form]
    enough = (hits >= LEAST) & (hits >= share * trials)
    likely = enough & (chance + np.log(found.tried[found.memory]) <= np.log(LEVEL))
    kept = np.flatnonzero(likely)
    kept = kept[np.lexsort((found.form[kept], chance[kept], found.memory[kept]))]
    fixed = np.zeros((len(found.memory), _FURTHEST + 1), dtype=bool)
    fixed[kept] = _fixed(triggers.prefixes, found, kept)
    return {
        memory: _chosen(found, rows, chance, expected, int(tested[memory]), fixed[rows])
        for memory, rows in _runs(found.memory[kept], kept)
    }


def expected_rates(found: Candidates, triggers: Triggers, rates: Rates) -> Array:
    """The share of prefixes as long as a memory's that would have each thing by chance."""
    rate = rates.of(found.form, found.code)
    width = int(triggers.bit.max(initial=0)) + 1
    tested = triggers.tested[:, None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)
    for number, form in enumerate(rates.forms):
        here = found.form == number
        if form.words and here.any():
            places = triggers.lengths(form.words, width)[found.memory[here]]
            weight = tested[found.memory[here]].astype(np.float64)
            has = -np.expm1(places * np.log1p(-np.minimum(rate[here], 0.999))[:, None])
            rate[here] = (has * weight).sum(1) / np.maximum(weight.sum(1), 1)
    return rate


def _runs(keys: Array, rows: Array) -> Iterator[tuple[int, Array]]:
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    for start, stop in zip(starts, [*starts[1:], len(keys)][: len(starts)], strict=True):
        yield int(keys[start]), rows[start:stop]


def _chosen(found: Candidates, rows: Array, chance: Array, expected: Array, tested: int, fixed: Array) -> list[Shared]:
    """The best form, then the best for the prefixes that it leaves, and so on: what repeats another is left out."""
    bits = [int(found.bits[row]) for row in rows]
    rate = [float(expected[row]) for row in rows]
    tried = int(found.tried[found.memory[rows[0]]])
    logs = [float(chance[row]) for row in rows]
    picked: list[int] = []
    left = tested
    while len(picked) < MOST and left.bit_count() >= LEAST:
        best, i = min((_left(bits[i], left, rate[i], logs[i], tested), i) for i in range(len(rows)))
        if best + log(tried) > log(LEVEL):
            break
        alike = _ALIKE_TOKEN if SHALLOW[found.form[rows[i]]].name == "token" else _ALIKE
        same = [j for j in range(len(rows)) if bits[j] == bits[i] and rate[j] <= alike * rate[i]]
        picked.append(min(same, key=lambda j: (int(found.form[rows[j]]), CLASS_OF.get(int(found.code[rows[j]]), 0), j)))
        left &= ~bits[i]

    def shared(i: int, often: tuple[Shared, ...] = ()) -> Shared:
        row, own = rows[i], (SHALLOW[found.form[rows[i]]], int(found.code[rows[i]]))
        closest, apart = _closest(found, rows, bits[i], rate), _apart(found, rows, i, fixed)
        return Shared(*own, bits[i], corrected(logs[i], tried), int(found.example[row]), closest, apart, often)

    longer = {i: _longer(found, rows, i, rate, tried) for i in picked}
    nested = {j for i in picked for j in longer[i]}
    return [shared(i, tuple(shared(j) for j in longer[i][:_OFTEN])) for i in picked if i not in nested]


def _longer(found: Candidates, rows: Array, chosen: int, rate: list[float], tried: int) -> list[int]:
    """Of forms that add words to a chosen one, those that too many of its prefixes have for chance; no two overlap."""
    bits, fixes = int(found.bits[rows[chosen]]), set(SHALLOW[found.form[rows[chosen]]].fixes)
    taken, kept = 0, []
    for j, row in enumerate(rows):
        some, more = int(found.bits[row]), set(SHALLOW[found.form[row]].fixes)
        if not fixes or not fixes < more or some & ~bits or some & taken or some == bits:
            continue
        chance = tail(bits.bit_count(), some.bit_count(), min(rate[j] / rate[chosen], 0.99))
        if chance + log(tried) <= log(LEVEL):
            taken |= some
            kept.append(j)
    return kept


def _closest(found: Candidates, rows: Array, bits: int, rate: list[float]) -> tuple[Form, int]:
    """The rarest form in a fixed place that most of these prefixes have: what they have in common is due to that first."""
    most = [
        (rate[j], j)
        for j, row in enumerate(rows)
        if (int(found.bits[row]) & bits).bit_count() >= _MOST_OF * bits.bit_count()
        and not SHALLOW[found.form[row]].words
    ]
    row = rows[min(most)[1]] if most else rows[0]
    return SHALLOW[found.form[row]], int(found.code[row])


def _apart(found: Candidates, rows: Array, chosen: int, fixed: Array) -> int:
    """The prefixes of a form, but of those with one more content word in common, in a fixed place, only the first."""
    bits, own = int(found.bits[rows[chosen]]), fixed[chosen]
    for row, more in zip(rows, (fixed & ~own).any(1), strict=True):
        common = int(found.bits[row]) & bits
        if more:
            bits &= ~(common & (common - 1))  # all but the lowest bit
    return bits


def _fixed(prefixes: Prefixes, found: Candidates, rows: Array) -> Array:
    """Of each form, by distance from the last: whether it fixes a content word there."""
    some, tells = prefixes.take(found.example[rows]), prefixes.sentences.lexicon.content
    words = [some.word, *(some.before(distance) for distance in range(1, _FURTHEST + 1))]
    content = np.stack([tells[word] & (word >= 0) for word in words], 1)
    fixes = np.array([[far in form.fixes for far in range(_FURTHEST + 1)] for form in SHALLOW])
    return content & fixes[found.form[rows]]


def _left(bits: int, left: int, rate: float, whole: float, tested: int) -> float:
    """How unlikely it is for a form to be shared by the prefixes that are left."""
    if left == tested:
        return whole
    hits = (bits & left).bit_count()
    return tail(left.bit_count(), hits, rate) if hits >= LEAST else 0.0
