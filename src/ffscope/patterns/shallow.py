"""Surface forms that the triggers of a memory share, each compared with its frequency in the corpus."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from math import exp, log

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import Candidates, Rates, find_candidates
from ffscope.patterns.conditional_background import ConditionalBackground
from ffscope.patterns.forms import CLASS_OF, FAMILIES, SHALLOW, Form
from ffscope.patterns.pattern import LEAST, MOST
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.significance import SMALLEST, log_tail, log_tails

LEVEL = 0.004  # the probability that random prefixes get any shallow pattern
_MOST_OF, _HALF = 0.6, 0.5
_WITHIN = 3  # forms that are tested for each prefix of a coarse one: its word, lemma and token
_ASSOCIATED = 10.0  # how many times its rate a form may have given another one, where the sample cannot tell
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

    @cached_property
    def _by_memory(self) -> tuple[Array, Array]:
        order = np.argsort(self.memory, kind="stable")
        memories = int(self.memory.max(initial=-1)) + 1
        return order, np.searchsorted(self.memory[order], np.arange(memories + 1))

    def sentences(self, memory: int) -> Array:
        """The rows of the sentences of a memory's triggers."""
        order, starts = self._by_memory
        return self.prefixes.row[order[starts[memory] : starts[memory + 1]]]

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
    rate: float  # the share of prefixes of the corpus that have it
    example: int
    closest: tuple[Form, int]
    apart: int
    often: tuple["Shared", ...] = ()  # what more of these prefixes have than others with the form


def find_shared(triggers: Triggers, rates: Rates, conditional: ConditionalBackground) -> dict[int, list[Shared]]:
    """The shared surface forms of every memory that has any, best first."""
    candidates = find_candidates(triggers.prefixes, triggers.memory, triggers.bit, SHALLOW, least=LEAST)
    tested = triggers.tested
    expected = expected_rates(candidates, triggers, rates)
    trials = np.bitwise_count(tested)[candidates.memory].astype(np.int64)
    hits = np.bitwise_count(candidates.bits & tested[candidates.memory]).astype(np.int64)
    chance = log_tails(trials, hits, expected)
    least_share = np.array([form.share for form in SHALLOW])[candidates.form]
    enough = (hits >= LEAST) & (hits >= least_share * trials)
    correction = np.log(corrections(candidates))
    chosen = np.flatnonzero(enough & (chance + correction <= np.log(LEVEL)))
    chosen = chosen[np.lexsort((candidates.form[chosen], chance[chosen], candidates.memory[chosen]))]
    fixed = np.zeros((len(candidates.memory), _FURTHEST + 1), dtype=bool)
    fixed[chosen] = _fixed(triggers.prefixes, candidates, chosen)
    return {
        memory: _Selection(
            candidates,
            rows,
            chance,
            correction,
            expected,
            int(tested[memory]),
            fixed[rows],
            conditional,
            triggers.sentences(memory),
        ).shared()
        for memory, rows in _runs(candidates.memory[chosen], chosen)
    }


def corrections(candidates: Candidates) -> Array:
    """The number of candidates that each is the best of: those of its family in its memory, divided by the family's share."""
    families = list(FAMILIES)
    family = np.array([families.index(form.family) for form in SHALLOW])
    tried = np.stack(
        [candidates.tried[:, family == number].sum(1) / share for number, share in enumerate(FAMILIES.values())], 1
    )
    return tried[candidates.memory, family[candidates.form]]


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


class _Selection:
    """The significant candidates of one memory, best first, and those that are chosen to describe it."""

    def __init__(
        self,
        candidates: Candidates,
        rows: Array,
        chance: Array,
        correction: Array,
        expected: Array,
        tested: int,
        fixed: Array,
        conditional: ConditionalBackground,
        sentences: Array,
    ) -> None:
        self.conditional, self.sentences = conditional, sentences
        self.candidates, self.rows, self.tested, self.fixed = candidates, rows, tested, fixed
        self.bits = [int(bits) for bits in candidates.bits[rows]]
        self.rate, self.logs, self.correction = (values[rows].tolist() for values in (expected, chance, correction))
        self.forms = [SHALLOW[form] for form in candidates.form[rows]]

    def shared(self) -> list[Shared]:
        """The best form, then the best for the prefixes that remain, and so on, without forms that are part of another."""
        picked = self._greedy()
        picked += self._finer(picked)
        longer = {i: self._longer(i) for i in picked}
        nested = {j for i in picked for j in longer[i]}
        kept = [i for i in picked if i not in nested]
        often = {i: [*longer[i][:_OFTEN], *self._elsewhere(i)] for i in kept}
        return [self._described(i, tuple(self._described(j) for j in often[i])) for i in kept]

    def _greedy(self) -> list[int]:
        picked: list[int] = []
        remaining = self.tested
        while len(picked) < MOST and remaining.bit_count() >= LEAST:
            best, i = min((self._remaining_log_p(i, remaining) + self.correction[i], i) for i in range(len(self.rows)))
            if best > log(LEVEL):
                break
            picked.append(self._simplest(i))
            remaining &= ~self.bits[i]
        return picked

    def _remaining_log_p(self, i: int, remaining: int) -> float:
        """The log-probability that the remaining prefixes share a form by chance."""
        if remaining == self.tested:
            return self.logs[i]
        hits = (self.bits[i] & remaining).bit_count()
        return log_tail(remaining.bit_count(), hits, self.rate[i]) if hits >= LEAST else 0.0

    def _simplest(self, i: int) -> int:
        """The simplest form that is equivalent to a candidate."""
        factor = _EQUIVALENT_TOKEN if self.forms[i].name == "token" else _EQUIVALENT
        equivalent = [
            j for j in range(len(self.rows)) if self.bits[j] == self.bits[i] and self.rate[j] <= factor * self.rate[i]
        ]
        codes = self.candidates.code[self.rows]
        return min(equivalent, key=lambda j: (SHALLOW.index(self.forms[j]), CLASS_OF.get(int(codes[j]), 0), j))

    def _finer(self, picked: list[int]) -> list[int]:
        """Words and tokens that recur within a chosen coarse form more often than by chance, given that form."""
        finer: list[int] = []
        for coarse in picked:
            if not self.forms[coarse].coarse:
                continue
            remaining = self.bits[coarse]
            remaining &= ~_union(self.bits[i] for i in [*picked, *finer] if not self.forms[i].coarse)
            while len(picked) + len(finer) < MOST and remaining.bit_count() >= LEAST:
                best, i = min((self._log_p_within(i, coarse, remaining), i) for i in range(len(self.rows)))
                if best > log(LEVEL):
                    break
                finer.append(self._simplest(i))
                remaining &= ~self.bits[i]
        return finer

    def _log_p_within(self, i: int, coarse: int, remaining: int) -> float:
        """The corrected log-probability that prefixes with a coarse form share a word by chance."""
        hits = (self.bits[i] & remaining).bit_count()
        if (
            self.forms[i].name not in ("last word", "lemma", "token")
            or hits < LEAST
            or self.bits[i] == self.bits[coarse]
        ):
            return 0.0
        rate = min(self.rate[i] / self.rate[coarse], 0.99)
        candidates = _WITHIN * self.bits[coarse].bit_count()
        return log_tail(remaining.bit_count(), hits, rate) + log(candidates)

    def _longer(self, chosen: int) -> list[int]:
        """The forms that extend a chosen one by words and that more of its prefixes have than by chance; no two overlap."""
        bits, fixes = self.bits[chosen], set(self.forms[chosen].fixes)
        used, longer = 0, []
        for j, own in enumerate(self.bits):
            extends = fixes and fixes < set(self.forms[j].fixes)
            if not extends or own & ~bits or own & used or own == bits:
                continue
            chance = log_tail(bits.bit_count(), own.bit_count(), min(self.rate[j] / self.rate[chosen], 0.99))
            if chance + self.correction[j] <= log(LEVEL):
                used |= own
                longer.append(j)
        return longer

    def _elsewhere(self, chosen: int) -> list[int]:
        """What most prefixes of a chosen form have in the last word or the one before it, but few other prefixes with the form."""
        form, bits = self.forms[chosen], self.bits[chosen]
        others = [
            j
            for j, other in enumerate(self.forms)
            if form.combines(other) and (self.bits[j] & bits).bit_count() >= _HALF * bits.bit_count()
        ]
        if not others:
            return []
        rows = self.conditional.rows(form, int(self.candidates.code[self.rows[chosen]]), self.sentences)
        p_values = {j: self._log_p_given(j, bits, rows) for j in others}
        significant = [j for j in others if p_values[j] <= log(LEVEL)]
        # A word says more than its ending, which a few more of the prefixes may have.
        if not significant:
            return []
        best = min(significant, key=lambda j: (self.forms[j].family == "affix", p_values[j]))
        return [
            min((j for j in significant if self.bits[j] == self.bits[best]), key=lambda j: SHALLOW.index(self.forms[j]))
        ]

    def _log_p_given(self, i: int, bits: int, rows: Array) -> float:
        """The corrected log-probability that prefixes of a form have another one by chance; `rows` of the sample have the form."""
        row = self.rows[i]
        subject = int(self.candidates.form[row]), self.forms[i], int(self.candidates.code[row])
        hits, otherwise = (self.bits[i] & bits).bit_count(), min(_ASSOCIATED * self.rate[i], 1.0)
        return log_tail(bits.bit_count(), hits, self.conditional.share(rows, subject, otherwise)) + self.correction[i]

    def _described(self, i: int, often: tuple[Shared, ...] = ()) -> Shared:
        row, p_value = self.rows[i], exp(max(min(self.logs[i] + self.correction[i], 0.0), log(SMALLEST)))
        form, code = self.forms[i], int(self.candidates.code[row])
        example = int(self.candidates.example[row])
        return Shared(form, code, self.bits[i], p_value, self.rate[i], example, self._closest(i), self._apart(i), often)

    def _closest(self, i: int) -> tuple[Form, int]:
        """The rarest form in a fixed place that most of these prefixes have; it best explains what else they share."""
        enough = _MOST_OF * self.bits[i].bit_count()
        shared = [
            (self.rate[j], j)
            for j, bits in enumerate(self.bits)
            if (bits & self.bits[i]).bit_count() >= enough and not self.forms[j].words
        ]
        j = min(shared)[1] if shared else 0
        return self.forms[j], int(self.candidates.code[self.rows[j]])

    def _apart(self, i: int) -> int:
        """The prefixes of a form; of those that share one more content word in a fixed place, only the first."""
        bits = self.bits[i]
        for other, more in zip(self.bits, (self.fixed & ~self.fixed[i]).any(1), strict=True):
            common = other & bits
            if more:
                bits &= ~(common & (common - 1))  # all but the lowest bit
        return bits


def _union(bits: Iterable[int]) -> int:
    union = 0
    for part in bits:
        union |= part
    return union


def _fixed(prefixes: Prefixes, candidates: Candidates, rows: Array) -> Array:
    """For each candidate, by distance from the last word: whether it determines a content word there."""
    examples, is_content = prefixes.take(candidates.example[rows]), prefixes.sentences.lexicon.content
    words = [examples.word, *(examples.before(distance) for distance in range(1, _FURTHEST + 1))]
    content = np.stack([is_content[word] & (word >= 0) for word in words], 1)
    fixes = np.array([[far in form.fixes for far in range(_FURTHEST + 1)] for form in SHALLOW])
    return content & fixes[candidates.form[rows]]
