"""Patterns in the words that a person would use."""

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import CLASS_OF, form_code
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.shallow import Shared
from ffscope.patterns.words import CLASSES
from ffscope.tokens import visible

_LONGEST = 40
_ORDINALS = {3: "third", 4: "fourth", 5: "fifth"}
_CLASSES = [*(f"ends with {said}" for said in CLASSES.values()), "ends inside a word"]


def quoted(text: str) -> str:
    """A piece of the text, set off from our own words."""
    return f"“{visible(text, _LONGEST)}”"


def describe(shared: Shared, prefixes: Prefixes, members: list[int], tokens: list[str]) -> str:
    """A form, in words; `members` are the rows that have it, `tokens` how tokens are shown."""
    often = [_said(one, prefixes, members, tokens).removeprefix("ends with ") for one in shared.often]
    return f"{_said(shared, prefixes, members, tokens)}{', often ' if often else ''}{', '.join(often)}"


def _said(shared: Shared, prefixes: Prefixes, members: list[int], tokens: list[str]) -> str:
    name, example = shared.form.name, shared.example
    place = int(prefixes.last[example])
    if name == "class":
        return _CLASSES[CLASS_OF[shared.code]]
    if name == "token":
        token = int(prefixes.token[example])
        return f"ends with the token {quoted(tokens[token] if token < len(tokens) else f'#{token}')}"
    if name == "lemma":
        return f"ends with {_forms(prefixes, members)}"
    if name == "ending":
        return f"ends with a word in {quoted('-' + _folded(prefixes, int(prefixes.word[example]))[-3:])}"
    if name == "alone":
        return "is the first word of a sentence"
    if name == "first word":
        return f"its sentence begins with {quoted(_words(prefixes, example, 0, 1))}"
    if name.startswith("last"):
        count = {"last word": 1, "last two words": 2, "last three words": 3}[name]
        before = _words(prefixes, example, place - count + 1, place)
        said = f"{before} {_folded(prefixes, int(prefixes.word[example]))}".strip()
        return f"ends with {quoted(said)}, part of a word" if prefixes.part[example] else f"ends with {quoted(said)}"
    if name.endswith("before"):
        return _standing(prefixes, example, name)
    within = " ".join(_folded(prefixes, int(word)) for word in words_within(shared, prefixes))
    return f"contains {quoted(within)}"


def _standing(prefixes: Prefixes, example: int, name: str) -> str:
    *pair, distance, _ = name.split()
    place = int(prefixes.last[example]) - int(distance)
    said = quoted(_words(prefixes, example, place - len(pair), place + 1))
    if int(distance) == 1:
        return f"{said} {'stand' if pair else 'stands'} before the last word"
    return f"{said} {'stand' if pair else 'stands'} {_ORDINALS[int(distance) + 1]} from the end"


def _folded(prefixes: Prefixes, word: int) -> str:
    lexicon = prefixes.sentences.lexicon
    return lexicon.folds[lexicon.folded[word]]


def _words(prefixes: Prefixes, row: int, start: int, stop: int) -> str:
    """Some words of the sentence of a prefix."""
    first = int(prefixes.sentences.starts[prefixes.row[row]])
    return " ".join(_folded(prefixes, int(word)) for word in prefixes.sentences.words[first + start : first + stop])


def _forms(prefixes: Prefixes, members: list[int]) -> str:
    forms, counts = np.unique(prefixes.sentences.lexicon.folded[prefixes.word[members]], return_counts=True)
    often = forms[np.argsort(-counts, kind="stable")][:3]
    return ", ".join(quoted(prefixes.sentences.lexicon.folds[form]) for form in often)


def words_within(shared: Shared, prefixes: Prefixes) -> Array:
    """The words that the code of something within stands for, found again in the example."""
    _, codes = shared.form.codes(prefixes.take(np.array([shared.example])))
    place = int(np.flatnonzero(form_code(shared.form, codes) == np.uint64(shared.code))[0])
    first = int(prefixes.sentences.starts[prefixes.row[shared.example]]) + place
    return prefixes.sentences.words[first : first + shared.form.words]
