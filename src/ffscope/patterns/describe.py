"""Descriptions of patterns in plain words."""

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import CLASS_OF, form_code
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.shallow import Shared
from ffscope.patterns.words import CLASSES
from ffscope.tokens import visible

_LONGEST = 40
_ORDINALS = {3: "third", 4: "fourth", 5: "fifth"}
_CLASSES = [*(f"ends with {description}" for description in CLASSES.values()), "ends inside a word"]


def quoted(text: str) -> str:
    """A piece of corpus text in quotes."""
    return f"“{visible(text, _LONGEST)}”"


def describe(shared: Shared, prefixes: Prefixes, members: list[int], tokens: list[str]) -> str:
    """A shared form in words; `members` are the rows that have it, `tokens` the spellings of tokens."""
    often = [_description(longer, prefixes, members, tokens).removeprefix("ends with ") for longer in shared.often]
    return f"{_description(shared, prefixes, members, tokens)}{', often ' if often else ''}{', '.join(often)}"


def _description(shared: Shared, prefixes: Prefixes, members: list[int], tokens: list[str]) -> str:
    name, example = shared.form.name, shared.example
    place = int(prefixes.last[example])
    if name == "class":
        return _CLASSES[CLASS_OF[shared.code]]
    if name == "token":
        token = int(prefixes.token[example])
        return f"ends with the token {quoted(tokens[token] if token < len(tokens) else f'#{token}')}"
    if name == "lemma":
        return f"ends with {_inflections(prefixes, members)}"
    if name == "ending":
        return f"ends with a word in {quoted('-' + _folded(prefixes, int(prefixes.word[example]))[-3:])}"
    if name == "alone":
        return "is the first word of a sentence"
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


def _inflections(prefixes: Prefixes, members: list[int]) -> str:
    forms, counts = np.unique(prefixes.sentences.lexicon.folded[prefixes.word[members]], return_counts=True)
    frequent = forms[np.argsort(-counts, kind="stable")][:3]
    return ", ".join(quoted(prefixes.sentences.lexicon.folds[form]) for form in frequent)


def words_within(shared: Shared, prefixes: Prefixes) -> Array:
    """The words behind the code of a form that may occur anywhere, recovered from the example."""
    _, codes = shared.form.codes(prefixes.take(np.array([shared.example])))
    place = int(np.flatnonzero(form_code(shared.form, codes) == np.uint64(shared.code))[0])
    first = int(prefixes.sentences.starts[prefixes.row[shared.example]]) + place
    return prefixes.sentences.words[first : first + shared.form.words]
