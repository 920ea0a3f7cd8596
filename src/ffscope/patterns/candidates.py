"""What prefixes may have in common: everything about them that could recur, each as a number that is equal where it does."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.words import CLASSES

Codes = tuple[Array, Array]  # of each: which prefix it belongs to, and its number
# Of splitmix64, which scatters even numbers that differ by little; a plain product of them collides.
_STEP, _FIRST, _SECOND = (np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def mixed(*parts: Array | np.int64) -> Array:
    """Several numbers as one of 64 bits, the same in every run."""
    made: Array = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            made = made * _STEP + np.asarray(part).astype(np.uint64) + _STEP
            made = (made ^ (made >> np.uint64(30))) * _FIRST
            made = (made ^ (made >> np.uint64(27))) * _SECOND
            made = made ^ (made >> np.uint64(31))
    return made


def _some(key: Array, where: Array) -> Codes:
    """Of prefixes that each have one code, or none."""
    return np.flatnonzero(where), key[where]


def _last_words(prefixes: Prefixes, count: int) -> Codes:
    """The last words of each prefix; one that goes on is another word than one that ends."""
    folded = prefixes.sentences.lexicon.folded
    words = [prefixes.before(distance) for distance in range(count - 1, 0, -1)]
    key = mixed(*(np.where(word < 0, 0, folded[word]) for word in words), folded[prefixes.word], prefixes.part)
    return _some(key, (prefixes.last >= count - 1) & (prefixes.word > 0))


def _lemma(prefixes: Prefixes) -> Codes:
    lexicon = prefixes.sentences.lexicon
    return _some(mixed(lexicon.lemma[prefixes.word]), ~prefixes.part & (prefixes.word > 0))


def _token(prefixes: Prefixes) -> Codes:
    return _some(mixed(prefixes.token), np.ones(len(prefixes), dtype=bool))


def _class(prefixes: Prefixes) -> Codes:
    found = prefixes.sentences.lexicon.classes[prefixes.word] & ~prefixes.part[:, None]
    owner, number = np.nonzero(np.column_stack([found, prefixes.part]))  # part of a word is the last class
    return owner, mixed(number)


def _ending(prefixes: Prefixes) -> Codes:
    ending = prefixes.sentences.lexicon.endings[prefixes.word]
    return _some(mixed(ending), (ending >= 0) & ~prefixes.part)


def _before(prefixes: Prefixes, distance: int) -> Codes:
    word = prefixes.before(distance)
    return _some(mixed(prefixes.sentences.lexicon.folded[word]), word >= 0)


def _pair_before(prefixes: Prefixes, distance: int) -> Codes:
    folded = prefixes.sentences.lexicon.folded
    first, second = prefixes.before(distance + 1), prefixes.before(distance)
    return _some(mixed(folded[first], folded[second]), first >= 0)


def _first(prefixes: Prefixes) -> Codes:
    """The word that its sentence begins with, where that is not near the end."""
    words = prefixes.sentences.words[np.where(prefixes.last > 0, prefixes.sentences.starts[prefixes.row], 0)]
    return _some(mixed(prefixes.sentences.lexicon.folded[words]), prefixes.last > 4)


def _alone(prefixes: Prefixes) -> Codes:
    alone = (prefixes.last == 0) & (prefixes.word > 0)
    return _some(mixed(np.zeros(len(prefixes), dtype=np.int64)), alone)


def _within(prefixes: Prefixes, count: int) -> Codes:
    """Words, or pairs or triples of them, anywhere before the last word."""
    owner, place = prefixes.spread()
    room = np.repeat(prefixes.sentences.starts[prefixes.row] + prefixes.last, prefixes.last) - place
    owner, place = owner[room >= count], place[room >= count]
    folded = prefixes.sentences.lexicon.folded
    words = prefixes.sentences.words
    return owner, mixed(*(folded[words[place + i]] for i in range(count)))


def _content(prefixes: Prefixes) -> Codes:
    """What a prefix may be about: its content words, by their lemmas; the last, too, where it is whole."""
    lexicon = prefixes.sentences.lexicon
    owner, place = prefixes.spread()
    whole = np.flatnonzero(~prefixes.part)
    owner, words = (
        np.concatenate([owner, whole]),
        np.concatenate([prefixes.sentences.words[place], prefixes.word[whole]]),
    )
    tells = lexicon.content[words]
    return owner[tells], mixed(lexicon.lemma[words[tells]])


@dataclass(frozen=True)
class Form:
    """One thing that prefixes may share. The sample says how often: by prefix, or by place where it may stand anywhere."""

    name: str
    codes: Callable[[Prefixes], Codes]
    words: int = 0  # of what may stand anywhere; 0 for what is at the end, or in a fixed place
    share: float = 0.0  # of a memory's prefixes that must have it
    fixes: tuple[int, ...] = ()  # the words that are the same in all, by their distance from the last


# In the order in which one is preferred to another that says the same. What stands just anywhere is shared by texts on one
# subject: it is a surface form of its own only where much of them has it.
SHALLOW = (
    Form("last word", partial(_last_words, count=1), fixes=(0,)),
    Form("lemma", _lemma, fixes=(0,)),
    Form("last two words", partial(_last_words, count=2), fixes=(0, 1)),
    Form("last three words", partial(_last_words, count=3), fixes=(0, 1, 2)),
    Form("token", _token),
    Form("class", _class),
    Form("ending", _ending),
    Form("alone", _alone),
    *(Form(f"{far} before", partial(_before, distance=far), fixes=(far,)) for far in (1, 2, 3, 4)),
    *(Form(f"pair {far} before", partial(_pair_before, distance=far), fixes=(far, far + 1)) for far in (1, 2)),
    Form("first word", _first, share=0.2),
    Form("word within", partial(_within, count=1), words=1, share=0.4),
    Form("two within", partial(_within, count=2), words=2, share=0.2),
    Form("three within", partial(_within, count=3), words=3, share=0.2),
)
_CLASS = [form.name for form in SHALLOW].index("class")
# Which class a code is of; what goes on comes after the classes of words.
CLASS_OF = {
    int(mixed(np.int64(_CLASS), mixed(np.int64(number)).view(np.int64))[0]): number
    for number in range(len(CLASSES) + 1)
}
CONTENT = Form("content word", _content, words=1)


def form_code(form: Form, codes: Array) -> Array:
    """The codes of a shallow form as they are among those of others."""
    return mixed(np.int64(SHALLOW.index(form)), codes.view(np.int64))


@dataclass(frozen=True)
class Candidates:
    """What recurs among the prefixes of memories: one row for each memory and each thing that three or more share."""

    memory: Array
    form: Array  # the number of its form
    code: Array
    bits: Array  # which prefixes of the memory have it
    example: Array  # one of them
    tried: Array  # of each memory: how many things its prefixes might have shared


def gather(prefixes: Prefixes, memory: Array, bit: Array, forms: tuple[Form, ...], *, least: int) -> Candidates:
    """What `least` or more prefixes of a memory share; `memory` and `bit` say whose each prefix is, and which."""
    found = [(form.codes(prefixes), number) for number, form in enumerate(forms)]
    owner = np.concatenate([codes[0] for codes, _ in found])
    form = np.concatenate([np.full(len(codes[0]), number) for codes, number in found])
    code = np.concatenate([mixed(np.int64(number), codes[1].view(np.int64)) for codes, number in found])
    return grouped(memory[owner], form, code, bit[owner], owner, least=least)


def grouped(memory: Array, form: Array, code: Array, bit: Array, owner: Array, *, least: int) -> Candidates:
    """Equal codes of one memory together."""
    memories = int(memory.max()) + 1 if len(memory) else 0
    key = mixed(memory, code.view(np.int64))
    order = np.argsort(key)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(key[order]) != 0])) if len(order) else np.zeros(0, np.int64)
    held = np.left_shift(np.uint64(1), bit.astype(np.uint64))
    bits = np.bitwise_or.reduceat(held[order], starts) if len(order) else held
    first = np.minimum.reduceat(order, starts) if len(order) else order
    tried = np.bincount(memory[first], minlength=memories)
    kept = np.bitwise_count(bits) >= least
    first = first[kept]
    return Candidates(memory[first], form[first], code[first], bits[kept], owner[first], tried)


class Rates:
    """How often things occur in the text at large, by the prefixes of its sample."""

    def __init__(self, sample: Prefixes, forms: tuple[Form, ...]) -> None:
        self.forms = forms
        pieces, counts, self.totals = [], [], np.ones(len(forms))
        for number, form in enumerate(forms):
            prefixes = _whole(sample) if form.words else sample
            _, code = form.codes(prefixes)
            unique, count = np.unique(mixed(np.int64(number), code.view(np.int64)), return_counts=True)
            pieces.append(unique)
            counts.append(count)
            places = np.maximum(prefixes.last - (form.words - 1), 0).sum() if form.words else len(prefixes)
            self.totals[number] = max(int(places), 1)
        codes = np.concatenate(pieces)
        order = np.argsort(codes)
        self.codes, self.counts = codes[order], np.concatenate(counts)[order]

    def of(self, form: Array, code: Array) -> Array:
        """The share of prefixes, or of places, that have each; what was never met gets half an occurrence."""
        place = np.minimum(np.searchsorted(self.codes, code), len(self.codes) - 1)
        count = np.where(self.codes[place] == code, self.counts[place], 0)
        return (count + 0.5) / (self.totals[form] + 1)


def _whole(sample: Prefixes) -> Prefixes:
    """The longest prefix of every sentence in the sample: every place that a word may stand in, once."""
    return sample.take(np.flatnonzero(np.append(np.diff(sample.row) != 0, True)[: len(sample)]))
