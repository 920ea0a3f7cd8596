"""The forms that prefixes may share: every property is hashed to a code, and equal properties have equal codes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.words import BEGINNINGS, CLASSES, ENDINGS

Codes = tuple[Array, Array]  # for each code: the row of its prefix, and the code itself
LONG, SHORT = (12, 10, 8), (2, 3)  # letters
DIGITS, MANY_DIGITS = (1, 2, 3, 4), (5, 7)
PLACES, EARLY, LATE = tuple(range(1, 11)), (2, 3, 5, 10), (50, 40, 30, 25, 20)  # words from the beginning of a sentence
SKIPS = range(2, 8)  # the distances of the first word of a skip-gram from the last
VARYING = -1  # such a distance, which varies
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


def _affix(prefixes: Prefixes, kind: str, number: int, distance: int) -> Codes:
    """The ending or beginning of the last word, or of the one before it."""
    affixes = getattr(prefixes.sentences.lexicon, kind)[:, number]
    word = prefixes.word if not distance else prefixes.before(distance)
    code = np.where(word < 0, -1, affixes[word])
    return _codes_where(hashed(code), (code >= 0) & (~prefixes.part if not distance else True))


def _several(masks: list[Array]) -> Codes:
    """Codes for several properties of each prefix, numbered from 0."""
    owner, number = np.nonzero(np.column_stack(masks))
    return owner, hashed(number)


def _piece(prefixes: Prefixes) -> Codes:
    """Which piece of a split word the last token is, and whether the word is capitalised."""
    lexicon = prefixes.sentences.lexicon
    split = (lexicon.letters[prefixes.word] > 0) & (prefixes.part | (prefixes.piece > 0))
    piece, part = prefixes.piece, prefixes.part
    kinds = [piece == 0, piece == 1, piece >= 2, (piece > 0) & ~part, (piece > 0) & part, piece >= 0]
    capital = lexicon.capital[prefixes.word]
    return _several([split & kind for kind in kinds] + [split & kind & capital for kind in kinds])


def _length(prefixes: Prefixes) -> Codes:
    letters = np.where(prefixes.part, 0, prefixes.sentences.lexicon.letters[prefixes.word])
    return _several(
        [letters >= count for count in LONG] + [(letters > 0) & (letters <= count) for count in SHORT],
    )


def _digits(prefixes: Prefixes) -> Codes:
    digits = np.where(prefixes.part, 0, prefixes.sentences.lexicon.digits[prefixes.word])
    return _several([digits == count for count in DIGITS] + [digits >= count for count in MANY_DIGITS])


def _position(prefixes: Prefixes) -> Codes:
    """The position of the last word in its sentence: exact near the beginning, and by bounds."""
    place, spelt = prefixes.length, prefixes.word > 0
    return _several(
        [spelt & (place == number) for number in PLACES]
        + [spelt & (place <= number) for number in EARLY]
        + [spelt & (place > number) for number in LATE],
    )


def _class_before(prefixes: Prefixes) -> Codes:
    word = prefixes.before(1)
    owner, number = np.nonzero(prefixes.sentences.lexicon.classes[word] & (word >= 0)[:, None])
    return owner, hashed(number)


def _lemma_before(prefixes: Prefixes) -> Codes:
    word = prefixes.before(1)
    return _codes_where(hashed(prefixes.sentences.lexicon.lemma[word]), word >= 0)


def _skip_gram(prefixes: Prefixes) -> Codes:
    """The last word with a word a few places before it, whatever stands between."""
    folded = prefixes.sentences.lexicon.folded
    owners, codes = [], []
    for distance in SKIPS:
        word = prefixes.before(distance)
        owner = np.flatnonzero((word >= 0) & ~prefixes.part)
        owners.append(owner)
        codes.append(hashed(folded[word[owner]], folded[prefixes.word[owner]]))
    owner, code = np.concatenate(owners), np.concatenate(codes)
    # a word that stands there twice counts once
    _, first = np.unique(hashed(owner, code.view(np.int64)), return_index=True)
    return owner[first], code[first]


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
    family: str = "words"  # forms that share a correction for the number of candidates
    words: int = 0  # length of a form that may occur anywhere; 0 for one in a fixed place
    share: float = 0.0  # the least share of a memory's prefixes that must have it
    fixes: tuple[int, ...] = ()  # the words that all share, by their distance from the last word

    @property
    def coarse(self) -> bool:
        """Whether many different words have it, so that a word may recur within it."""
        return self.family in ("shape", "affix")

    @property
    def place(self) -> str:
        """The part of a prefix that it is about: the last word, the word before it, or more of its text."""
        if self.family == "context" or self.name.endswith("before"):
            return "before" if self.name in _WORD_BEFORE else "text"
        return "text" if self.name == "position" or len(self.fixes) > 1 else "last"

    def combines(self, other: "Form") -> bool:
        """Whether the two say something together that no form says: a class of the last word after a given word, for example."""
        lexical = [form.family == "words" or bool(form.fixes) for form in (self, other)]
        return {self.place, other.place} == {"last", "before"} and not all(lexical)


_WORD_BEFORE = ("1 before", "lemma before", "class before", *(f"ending {length} before" for length in ENDINGS))
# Of two equivalent forms, the earlier is preferred. Texts on one subject share words that occur anywhere, so such a form counts
# as a surface form only if many of the prefixes have it.
SHALLOW = (
    Form("last word", partial(_last_words, count=1), fixes=(0,)),
    Form("lemma", _lemma, fixes=(0,)),
    Form("last two words", partial(_last_words, count=2), fixes=(0, 1)),
    Form("last three words", partial(_last_words, count=3), fixes=(0, 1, 2)),
    Form("token", _token),
    Form("class", _class, "shape"),
    Form("digits", _digits, "shape"),
    Form("piece", _piece, "shape"),
    *(
        Form(f"ending {length}", partial(_affix, kind="endings", number=number, distance=0), "affix")
        for number, length in enumerate(ENDINGS)
    ),
    *(
        Form(f"beginning {length}", partial(_affix, kind="beginnings", number=number, distance=0), "affix")
        for number, length in enumerate(BEGINNINGS)
    ),
    Form("length", _length, "shape"),
    Form("position", _position, "shape"),
    *(Form(f"{far} before", partial(_before, distance=far), "context", fixes=(far,)) for far in (1, 2, 3, 4)),
    *(
        Form(f"pair {far} before", partial(_pair_before, distance=far), "context", fixes=(far, far + 1))
        for far in (1, 2)
    ),
    Form("lemma before", _lemma_before, "context", fixes=(1,)),
    Form("class before", _class_before, "shape"),
    *(
        Form(f"ending {length} before", partial(_affix, kind="endings", number=number, distance=1), "affix")
        for number, length in enumerate(ENDINGS[:2])
    ),
    Form("skip-gram", _skip_gram, "context", fixes=(0, VARYING)),
    Form("first word", _first, "context", share=0.2),
    Form("word within", partial(_within, count=1), "context", words=1, share=0.4),
    Form("two within", partial(_within, count=2), "context", words=2, share=0.2),
    Form("three within", partial(_within, count=3), "context", words=3, share=0.2),
)
# The share of the level of significance that each family gets. There are few shapes, and each is common, so that they need more;
# beginnings and endings are many.
FAMILIES = {"words": 0.25, "shape": 0.45, "affix": 0.15, "context": 0.15}
CONTENT = Form("content word", _content, words=1)


def form_code(form: Form, codes: Array) -> Array:
    """The codes of a shallow form, made distinct from those of other forms."""
    return hashed(np.int64(SHALLOW.index(form)), codes.view(np.int64))


def numbers_of(name: str, count: int) -> dict[int, int]:
    """The numbers behind the codes of a form whose properties are numbered."""
    form = next(form for form in SHALLOW if form.name == name)
    return {int(code): number for number, code in enumerate(form_code(form, hashed(np.arange(count))))}


# Of equivalent classes, the one that comes first is named; incomplete words come after the classes of words.
CLASS_OF = numbers_of("class", len(CLASSES) + 1)
