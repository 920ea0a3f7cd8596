"""What prefixes may have in common: every property that could recur, hashed to a code; equal properties have equal codes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.words import CLASSES

Codes = tuple[Array, Array]  # for each code: the row of its prefix, and the code itself
# Constants of splitmix64, which scatters even neighbouring numbers; with plain products, codes would collide.
_STEP, _FIRST, _SECOND = (np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def hashed(*parts: Array | np.int64) -> Array:
    """Several numbers hashed into one of 64 bits, the same in every run."""
    code: Array = np.zeros(1, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for part in parts:
            code = code * _STEP + np.asarray(part).astype(np.uint64) + _STEP
            code = (code ^ (code >> np.uint64(30))) * _FIRST
            code = (code ^ (code >> np.uint64(27))) * _SECOND
            code = code ^ (code >> np.uint64(31))
    return code


def _codes_where(key: Array, where: Array) -> Codes:
    """The codes of prefixes that have at most one each."""
    return np.flatnonzero(where), key[where]


def _last_words(prefixes: Prefixes, count: int) -> Codes:
    """The last words of each prefix. An incomplete last word differs from the same letters as a whole word."""
    folded = prefixes.sentences.lexicon.folded
    words = [prefixes.before(distance) for distance in range(count - 1, 0, -1)]
    key = hashed(*(np.where(word < 0, 0, folded[word]) for word in words), folded[prefixes.word], prefixes.part)
    return _codes_where(key, (prefixes.last >= count - 1) & (prefixes.word > 0))


def _lemma(prefixes: Prefixes) -> Codes:
    lexicon = prefixes.sentences.lexicon
    return _codes_where(hashed(lexicon.lemma[prefixes.word]), ~prefixes.part & (prefixes.word > 0))


def _token(prefixes: Prefixes) -> Codes:
    return _codes_where(hashed(prefixes.token), np.ones(len(prefixes), dtype=bool))


def _class(prefixes: Prefixes) -> Codes:
    classes = prefixes.sentences.lexicon.classes[prefixes.word] & ~prefixes.part[:, None]
    owner, number = np.nonzero(np.column_stack([classes, prefixes.part]))  # an incomplete word is the last class
    return owner, hashed(number)


def _ending(prefixes: Prefixes) -> Codes:
    ending = prefixes.sentences.lexicon.endings[prefixes.word]
    return _codes_where(hashed(ending), (ending >= 0) & ~prefixes.part)


def _before(prefixes: Prefixes, distance: int) -> Codes:
    word = prefixes.before(distance)
    return _codes_where(hashed(prefixes.sentences.lexicon.folded[word]), word >= 0)


def _pair_before(prefixes: Prefixes, distance: int) -> Codes:
    folded = prefixes.sentences.lexicon.folded
    first, second = prefixes.before(distance + 1), prefixes.before(distance)
    return _codes_where(hashed(folded[first], folded[second]), first >= 0)


def _first(prefixes: Prefixes) -> Codes:
    """The first word of the sentence, unless it is near the end of the prefix."""
    words = prefixes.sentences.words[np.where(prefixes.last > 0, prefixes.sentences.starts[prefixes.row], 0)]
    return _codes_where(hashed(prefixes.sentences.lexicon.folded[words]), prefixes.last > 4)


def _alone(prefixes: Prefixes) -> Codes:
    alone = (prefixes.last == 0) & (prefixes.word > 0)
    return _codes_where(hashed(np.zeros(len(prefixes), dtype=np.int64)), alone)


def _within(prefixes: Prefixes, count: int) -> Codes:
    """Words, pairs or triples anywhere before the last word."""
    owner, place = prefixes.words_before_last()
    room = np.repeat(prefixes.sentences.starts[prefixes.row] + prefixes.last, prefixes.last) - place
    owner, place = owner[room >= count], place[room >= count]
    folded = prefixes.sentences.lexicon.folded
    words = prefixes.sentences.words
    return owner, hashed(*(folded[words[place + i]] for i in range(count)))


def _content(prefixes: Prefixes) -> Codes:
    """The lemmas of the content words, including the last word if it is complete."""
    lexicon = prefixes.sentences.lexicon
    owner, place = prefixes.words_before_last()
    whole = np.flatnonzero(~prefixes.part)
    owner, words = (
        np.concatenate([owner, whole]),
        np.concatenate([prefixes.sentences.words[place], prefixes.word[whole]]),
    )
    is_content = lexicon.content[words]
    return owner[is_content], hashed(lexicon.lemma[words[is_content]])


@dataclass(frozen=True)
class Form:
    """A kind of property that prefixes may share. Its rate is counted per prefix, or per position if it may occur anywhere."""

    name: str
    codes: Callable[[Prefixes], Codes]
    words: int = 0  # length of a form that may occur anywhere; 0 for one in a fixed place
    share: float = 0.0  # the least share of a memory's prefixes that must have it
    fixes: tuple[int, ...] = ()  # the words that all share, by their distance from the last word


# Of two equivalent forms, the earlier is preferred. Texts on one subject share words that occur anywhere, so such a form counts
# as a surface form only if many of the prefixes have it.
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
# The class of each code; incomplete words come after the classes of words.
CLASS_OF = {
    int(hashed(np.int64(_CLASS), hashed(np.int64(number)).view(np.int64))[0]): number
    for number in range(len(CLASSES) + 1)
}
CONTENT = Form("content word", _content, words=1)


def form_code(form: Form, codes: Array) -> Array:
    """The codes of a shallow form, made distinct from those of other forms."""
    return hashed(np.int64(SHALLOW.index(form)), codes.view(np.int64))


@dataclass(frozen=True)
class Candidates:
    """Properties that recur among the prefixes of memories: one row per memory and property."""

    memory: Array
    form: Array  # index of the form
    code: Array
    bits: Array  # which prefixes of the memory have it
    example: Array  # row of a prefix that has it
    tried: Array  # per memory: the number of distinct properties of its prefixes


def find_candidates(
    prefixes: Prefixes, memory: Array, bit: Array, forms: tuple[Form, ...], *, least: int
) -> Candidates:
    """What `least` or more prefixes of a memory share; `memory` and `bit` give the memory of each prefix and its bit there."""
    codes_by_form = [(form.codes(prefixes), number) for number, form in enumerate(forms)]
    owner = np.concatenate([codes[0] for codes, _ in codes_by_form])
    form = np.concatenate([np.full(len(codes[0]), number) for codes, number in codes_by_form])
    code = np.concatenate([hashed(np.int64(number), codes[1].view(np.int64)) for codes, number in codes_by_form])
    return _grouped(memory[owner], form, code, bit[owner], owner, least=least)


def _grouped(memory: Array, form: Array, code: Array, bit: Array, owner: Array, *, least: int) -> Candidates:
    """Group equal codes of each memory."""
    memories = int(memory.max()) + 1 if len(memory) else 0
    key = hashed(memory, code.view(np.int64))
    order = np.argsort(key)
    starts = np.flatnonzero(np.concatenate([[True], np.diff(key[order]) != 0])) if len(order) else np.zeros(0, np.int64)
    single_bits = np.left_shift(np.uint64(1), bit.astype(np.uint64))
    bits = np.bitwise_or.reduceat(single_bits[order], starts) if len(order) else single_bits
    first = np.minimum.reduceat(order, starts) if len(order) else order
    tried = np.bincount(memory[first], minlength=memories)
    recurring = np.bitwise_count(bits) >= least
    first = first[recurring]
    return Candidates(memory[first], form[first], code[first], bits[recurring], owner[first], tried)


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
