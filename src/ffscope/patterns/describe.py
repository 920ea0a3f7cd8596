"""Descriptions of patterns in plain words."""

import re
from collections.abc import Sequence

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.bits import set_bits
from ffscope.patterns.forms import (
    DIGITS,
    EARLY,
    LATE,
    LONG,
    MANY_DIGITS,
    PLACES,
    SHORT,
    SKIPS,
    form_code,
    hashed,
    numbers_of,
)
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.shallow import Shared
from ffscope.patterns.words import CLASSES, Lexicon
from ffscope.tokens import visible

_LONGEST = 40
_IN_SET = 5  # words of a set that are named
_INFLECTIONS = 3  # of one word that are named
_ORDINALS = dict(
    enumerate(["first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"], 1)
)
_PIECES = (
    "the first piece of a split",
    "the second piece of a split",
    "a later piece of a split",
    "the last piece of a split",
    "an inner piece of a split",
    "a piece of a split",
)
# The properties of the forms that are numbered, in words.
_NUMBERED = {
    "class": [*(f"ends with {description}" for description in CLASSES.values()), "ends inside a word"],
    "class before": [f"ends after {description}" for description in CLASSES.values()],
    "piece": [f"ends with {piece} {word}" for word in ("word", "capitalised word") for piece in _PIECES],
    "length": [
        *(f"ends with a word of at least {count} letters" for count in LONG),
        *(f"ends with a word of at most {count} letters" for count in SHORT),
    ],
    "digits": [
        *(f"ends with a number of {count} digit{'s' * (count > 1)}" for count in DIGITS),
        *(f"ends with a number of at least {count} digits" for count in MANY_DIGITS),
    ],
    "position": [
        *(f"ends with the {_ORDINALS[place]} word of its sentence" for place in PLACES),
        *(f"ends within the first {count} words of its sentence" for count in EARLY),
        *(f"ends after the first {count} words of its sentence" for count in LATE),
    ],
}
_NUMBER_OF = {name: numbers_of(name, len(descriptions)) for name, descriptions in _NUMBERED.items()}


def quoted(text: str) -> str:
    """A piece of corpus text in quotes."""
    return f"“{visible(text, _LONGEST)}”"


def describe(shared: Shared, prefixes: Prefixes, members: list[int], tokens: list[str]) -> str:
    """A shared form in words; `members` are the rows that have it, `tokens` the spellings of tokens."""
    description = _description(shared, prefixes, members, tokens)
    always: list[str] = []
    often: list[str] = []
    for other in shared.often:
        both = [row for row, bit in zip(members, set_bits(shared.bits), strict=True) if other.bits >> bit & 1]
        if len(both) < len(members):
            often.append(_phrase(other, prefixes, both, tokens))
        elif (shared.form.place, other.form.place) == ("before", "last"):  # "ends with a number after …"
            description = _description(other, prefixes, both, tokens)
            always.append(_phrase(shared, prefixes, members, tokens))
        else:
            always.append(_phrase(other, prefixes, both, tokens))
    description += "".join(f" {phrase}" if phrase.startswith("after") else f", {phrase}" for phrase in always)
    return f"{description}, often {', '.join(often)}" if often else description


def _phrase(shared: Shared, prefixes: Prefixes, members: list[int], tokens: list[str]) -> str:
    """A form in words that follow the description of another form."""
    description = _description(shared, prefixes, members, tokens)
    if description.startswith("ends "):
        return description.removeprefix("ends ").removeprefix("with ")
    words = re.sub(" stands? before the last word$", "", description)
    if words != description:
        return f"after {words}"
    return re.sub(r" stands? (\w+ from the end)$", r" \1", description)


def describe_set(words: Sequence[int], lexicon: Lexicon) -> str:
    """A set of last words in words."""
    return f"ends with words like {', '.join(quoted(lexicon.folds[word]) for word in words[:_IN_SET])}"


def _description(shared: Shared, prefixes: Prefixes, members: list[int], tokens: list[str]) -> str:
    name, example = shared.form.name, shared.example
    place = int(prefixes.last[example])
    if name in _NUMBERED:
        return _NUMBERED[name][_NUMBER_OF[name][shared.code]]
    if name == "token":
        token = int(prefixes.token[example])
        return f"ends with the token {quoted(tokens[token] if token < len(tokens) else f'#{token}')}"
    if name == "lemma":
        return f"ends with {_inflections(prefixes, prefixes.word[members])}"
    if name == "lemma before":
        return (
            f"{_inflections(prefixes, prefixes.take(np.array(members)).before(1), ' or ')} stands before the last word"
        )
    if name.startswith(("ending", "beginning")):
        return _affix(prefixes, example, *name.split())
    if name == "skip-gram":
        return f"ends with {quoted(_skip_gram(shared, prefixes))}"
    if name == "first word":
        return f"its sentence begins with {quoted(_words(prefixes, example, 0, 1))}"
    if name.startswith("last"):
        count = {"last word": 1, "last two words": 2, "last three words": 3}[name]
        before = _words(prefixes, example, place - count + 1, place)
        words = f"{before} {_folded(prefixes, int(prefixes.word[example]))}".strip()
        return f"ends with {quoted(words)}, part of a word" if prefixes.part[example] else f"ends with {quoted(words)}"
    if name.endswith("before"):
        return _before_last(prefixes, example, name)
    within = " ".join(_folded(prefixes, int(word)) for word in words_within(shared, prefixes))
    return f"contains {quoted(within)}"


def _affix(prefixes: Prefixes, example: int, kind: str, length: str, before: str = "") -> str:
    word = int(prefixes.take(np.array([example])).before(1)[0]) if before else int(prefixes.word[example])
    letters, count = _folded(prefixes, word), int(length)
    affix = quoted(f"-{letters[-count:]}" if kind == "ending" else f"{letters[:count]}-")
    preposition = "in" if kind == "ending" else "with"
    return (
        f"a word {preposition} {affix} stands before the last word"
        if before
        else f"ends with a word {preposition} {affix}"
    )


def _skip_gram(shared: Shared, prefixes: Prefixes) -> str:
    """The two words of a skip-gram, recovered from the example."""
    example = prefixes.take(np.array([shared.example]))
    last = int(example.word[0])
    for distance in SKIPS:
        word = int(example.before(distance)[0])
        code = hashed(*(example.sentences.lexicon.folded[[number]] for number in (word, last)))
        if word >= 0 and int(form_code(shared.form, code)[0]) == shared.code:
            return f"{_folded(prefixes, word)} … {_folded(prefixes, last)}"
    raise AssertionError("the example of a skip-gram has it")


def _before_last(prefixes: Prefixes, example: int, name: str) -> str:
    *pair, distance, _ = name.split()
    place = int(prefixes.last[example]) - int(distance)
    words = quoted(_words(prefixes, example, place - len(pair), place + 1))
    if int(distance) == 1:
        return f"{words} {'stand' if pair else 'stands'} before the last word"
    return f"{words} {'stand' if pair else 'stands'} {_ORDINALS[int(distance) + 1]} from the end"


def _folded(prefixes: Prefixes, word: int) -> str:
    lexicon = prefixes.sentences.lexicon
    return lexicon.folds[lexicon.folded[word]]


def _words(prefixes: Prefixes, row: int, start: int, stop: int) -> str:
    """Some words of the sentence that a prefix belongs to."""
    first = int(prefixes.sentences.starts[prefixes.row[row]])
    return " ".join(_folded(prefixes, int(word)) for word in prefixes.sentences.words[first + start : first + stop])


def _inflections(prefixes: Prefixes, words: Array, separator: str = ", ") -> str:
    forms, counts = np.unique(prefixes.sentences.lexicon.folded[words], return_counts=True)
    frequent = forms[np.argsort(-counts, kind="stable")][:_INFLECTIONS]
    listed = separator.join(quoted(prefixes.sentences.lexicon.folds[form]) for form in frequent)
    return f"{listed} or another form" if len(forms) > _INFLECTIONS else listed


def words_within(shared: Shared, prefixes: Prefixes) -> Array:
    """The words behind the code of a form that may occur anywhere, recovered from the example."""
    _, codes = shared.form.codes(prefixes.take(np.array([shared.example])))
    place = int(np.flatnonzero(form_code(shared.form, codes) == np.uint64(shared.code))[0])
    first = int(prefixes.sentences.starts[prefixes.row[shared.example]]) + place
    return prefixes.sentences.words[first : first + shared.form.words]
