"""Splits text into words and describes each by its surface: case, digits, length, beginning, ending, lemma."""

from hashlib import blake2b
from importlib.resources import files

import numpy as np
import regex

from ffscope.axes import Array
from ffscope.patterns.lemmas import lemmatize

# In scripts without spaces every character is a word, so that sequences of them are n-grams.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = regex.compile(
    rf"[{_UNSPACED}]\p{{M}}*|\p{{N}}+(?:[.,:]\p{{N}}+)+|[^\W{_UNSPACED}]+(?:['’][^\W{_UNSPACED}]+)*|([^\w\s])\1*",
    regex.VERSION1,
)
_FREQUENT = 100  # most frequent words that serve as stop words for languages without a list
_STEM = 2  # the letters that a word has at least beside a beginning or an ending
ENDINGS, BEGINNINGS = (3, 2, 4, 1), (3, 2, 1)  # their numbers of letters, in order of preference

# Classes of words, with the words that describe a prefix that ends with one; narrower classes first.
CLASSES = {
    "year": "a year",
    "number": "a number",
    "ordinal": "an ordinal number",
    "opening quote": "an opening quote",
    "closing quote": "a closing quote",
    "opening bracket": "an opening bracket",
    "closing bracket": "a closing bracket",
    "end mark": "a mark that ends a sentence",
    "capitalised": "a capitalised word",
    "capitals": "a word in capitals",
    "initial": "a single capital letter",
}
_SHAPES = {
    "year": regex.compile(r"1\d{3}|20\d{2}"),
    "number": regex.compile(r"\p{N}+(?:[.,:]\p{N}+)*"),
    "ordinal": regex.compile(r"\d*(?:1st|2nd|3rd|\dth)", regex.IGNORECASE),
    "opening quote": regex.compile(r"[“‘«„]"),
    "closing quote": regex.compile(r"[”’»]"),
    "opening bracket": regex.compile(r"[(\[{]"),
    "closing bracket": regex.compile(r"[)\]}]"),
    "end mark": regex.compile(r"[.!?…。！？।]+"),
    "capitalised": regex.compile(r"\p{Lu}\p{Ll}[\p{L}\p{M}'’]*"),
    "capitals": regex.compile(r"\p{Lu}{2,}"),
    "initial": regex.compile(r"\p{Lu}"),
}


def words_of(text: str) -> tuple[list[str], list[int], list[int]]:
    """The words of a text, and where each starts and ends. Straight quotes become opening or closing ones."""
    matches = list(_WORD.finditer(text))
    words = [_quote(text, match.start()) if match[0][0] == '"' else match[0] for match in matches]
    return words, [match.start() for match in matches], [match.end() for match in matches]


def _quote(text: str, place: int) -> str:
    return "“" if place == 0 or text[place - 1].isspace() or text[place - 1] in "([{—–" else "”"


class Lexicon:
    """All words of a text, numbered by spelling; `analyse` then computes their properties."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def number(self, word: str) -> int:
        return self.numbers.setdefault(word, len(self.numbers))

    def analyse(self, language: str, counts: Array) -> None:
        """Compute the properties of every word; `counts` are their frequencies."""
        self.spelt = list(self.numbers)
        folded: dict[str, int] = {}
        self.folded = np.array([folded.setdefault(word.casefold(), len(folded)) for word in self.spelt])
        self.folds = list(folded)
        self.frequency = np.bincount(self.folded, counts)
        self.spellings = self._frequent_spellings(counts)
        lemmas: dict[str, int] = {}
        lemma_of = [lemmas.setdefault(lemma, len(lemmas)) for lemma in lemmatize(self.spellings, language)]
        self.lemma_folds = np.array(lemma_of)
        self.lemma, self.lemmas = self.lemma_folds[self.folded], list(lemmas)
        self.endings, self.beginnings = (
            np.array([_affixes(word, lengths, last=last) for word in self.folds])[self.folded]
            for lengths, last in ((ENDINGS, True), (BEGINNINGS, False))
        )
        self.classes = np.array([_classes(word) for word in self.spelt])
        self.letters = np.array([len(word) if word.isalpha() else 0 for word in self.spelt])
        self.digits = np.array([_digits(word) for word in self.spelt])
        self.capital = np.array([word[:1].isupper() for word in self.spelt])
        stop = self._stop_words(language, self.frequency)
        self.content_folds = np.array([_is_content(word) and word not in stop for word in self.folds])
        self.content = self.content_folds[self.folded]

    def _frequent_spellings(self, counts: Array) -> list[str]:
        """The most frequent spelling of every case-folded word."""
        spellings = [""] * len(self.folds)
        for word in np.argsort(counts, kind="stable").tolist():  # the last of several stays
            spellings[self.folded[word]] = self.spelt[word]
        return spellings

    def _stop_words(self, language: str, frequency: Array) -> set[str]:
        if language == "en":
            return set(files("ffscope.report").joinpath("stop_words.txt").read_text(encoding="utf-8").split())
        return {self.folds[number] for number in np.argsort(-frequency, kind="stable")[:_FREQUENT]}


def _classes(word: str) -> list[bool]:
    return [bool(shape.fullmatch(word)) for shape in _SHAPES.values()]


def _affixes(word: str, lengths: tuple[int, ...], *, last: bool) -> list[int]:
    """The last or first letters of a word as numbers, for each of several lengths; -1 where the word is too short."""
    letters = word.replace("’", "'")
    if not letters.replace("'", "").isalpha():
        return [-1] * len(lengths)
    affixes = [letters[-length:] if last else letters[:length] for length in lengths]
    return [
        _number_of(affix.encode()) if len(letters) >= length + _STEM else -1
        for affix, length in zip(affixes, lengths, strict=True)
    ]


def _number_of(letters: bytes) -> int:
    """Letters as a positive integer of 64 bits; hashed if they need more."""
    return int.from_bytes(letters if len(letters) < 8 else blake2b(letters, digest_size=7).digest(), "big")


def _digits(word: str) -> int:
    """The number of digits before the decimal point; 0 for words that are no number."""
    return sum(map(str.isdigit, word.partition(".")[0])) if _SHAPES["number"].fullmatch(word) else 0


def _is_content(word: str) -> bool:
    """Whether a word may be a content word: it has letters, and more than two in scripts with spaces."""
    if not any(character.isalpha() for character in word):
        return False
    return len(word) > 2 or bool(regex.match(rf"[{_UNSPACED}]", word, regex.VERSION1))
