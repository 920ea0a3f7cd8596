"""The properties that recur among the triggers of memories, and how common each is in the corpus."""

from dataclasses import dataclass

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.forms import Form, hashed
from ffscope.patterns.prefixes import Prefixes


@dataclass(frozen=True)
class Candidates:
    """Properties that recur among the prefixes of memories: one row per memory and property."""

    memory: Array
    form: Array  # index of the form
    code: Array
    bits: Array  # which prefixes of the memory have it
    example: Array  # row of a prefix that has it
    tried: Array  # per memory and form: the number of distinct properties of its prefixes


def find_candidates(
    prefixes: Prefixes, memory: Array, bit: Array, forms: tuple[Form, ...], *, least: int
) -> Candidates:
    """What `least` or more prefixes of a memory share; `memory` and `bit` give the memory of each prefix and its bit there."""
    codes_by_form = [(form.codes(prefixes), number) for number, form in enumerate(forms)]
    owner = np.concatenate([codes[0] for codes, _ in codes_by_form])
    form = np.concatenate([np.full(len(codes[0]), number) for codes, number in codes_by_form])
    code = np.concatenate([hashed(np.int64(number), codes[1].view(np.int64)) for codes, number in codes_by_form])
    return _grouped(memory[owner], form, code, bit[owner], owner, forms=len(forms), least=least)


def _grouped(
    memory: Array, form: Array, code: Array, bit: Array, owner: Array, *, forms: int, least: int
) -> Candidates:
    """Group equal codes of each memory."""
    memories = int(memory.max()) + 1 if len(memory) else 0
    key = hashed(memory, code.view(np.int64))
    order = np.argsort(key)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(key[order]) != 0])) if len(order) else np.zeros(0, np.int64)
    single_bits = np.left_shift(np.uint64(1), bit.astype(np.uint64))
    bits = np.bitwise_or.reduceat(single_bits[order], starts) if len(order) else single_bits
    first = np.minimum.reduceat(order, starts) if len(order) else order
    tried = np.bincount(memory[first] * forms + form[first], minlength=memories * forms).reshape(memories, forms)
    recurring = np.bitwise_count(bits) >= least
    first, bits = first[recurring], bits[recurring]
    order = np.lexsort((code[first], memory[first]))  # the order in which ties are broken must not depend on the memory
    first, bits = first[order], bits[order]
    return Candidates(memory[first], form[first], code[first], bits, owner[first], tried)


class Rates:
    """How often properties occur in the corpus, estimated from a sample of its prefixes."""

    def __init__(self, sample: Prefixes, forms: tuple[Form, ...]) -> None:
        self.forms = forms
        pieces, counts, self.totals = [], [], np.ones(len(forms))
        for number, form in enumerate(forms):
            prefixes = _longest(sample) if form.words else sample
            _, code = form.codes(prefixes)
            unique, count = np.unique(hashed(np.int64(number), code.view(np.int64)), return_counts=True)
            pieces.append(unique)
            counts.append(count)
            places = np.maximum(prefixes.last - (form.words - 1), 0).sum() if form.words else len(prefixes)
            self.totals[number] = max(int(places), 1)
        codes = np.concatenate(pieces)
        order = np.argsort(codes)
        self.codes, self.counts = codes[order], np.concatenate(counts)[order]

    def of(self, form: Array, code: Array) -> Array:
        """The share of prefixes, or of positions, with each code; a code that does not occur counts as half an occurrence."""
        place = np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)
        count = np.where(self.codes[place] == code, self.counts[place], 0)
        return (count + 0.5) / (self.totals[form] + 1)


def _longest(sample: Prefixes) -> Prefixes:
    """The longest prefix of every sentence in the sample, which covers every word position once."""
    return sample.take(np.flatnonzero(np.append(np.diff(sample.row) != 0, True)[: len(sample)]))
