"""Text as words: where they are, and what can be seen of each without knowing what it means."""

from importlib.resources import files

import numpy as np
import regex

from ffscope.axes import Array

# Scripts that are written without spaces give one word for each character, so that runs of them are n-grams.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
_WORD = regex.compile(
    rf"[{_UNSPACED}]\p{{M}}*|\p{{N}}+(?:[.,:]\p{{N}}+)+|[^\W{_UNSPACED}]+(?:['’][^\W{_UNSPACED}]+)*|([^\w\s])\1*",
    regex.VERSION1,
)
_FREQUENT = 100  # words of a text that stand for stop words where there is no list of them
_ENDINGS = (("ies", "y"), ("s", ""), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", ""))

# What a word can be seen to be, each with the words that describe a prefix that ends with one; the narrower before the wider.
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
    """The words of a text, and where each starts and ends. Straight quotes are turned the way they face."""
    found = list(_WORD.finditer(text))
    words = [_facing(text, match.start()) if match[0][0] == '"' else match[0] for match in found]
    return words, [match.start() for match in found], [match.end() for match in found]


def _facing(text: str, place: int) -> str:
    return "“" if place == 0 or text[place - 1].isspace() or text[place - 1] in "([{—–" else "”"


class Lexicon:
    """Every word that was met, numbered as it is written; `close` then says what each looks like."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {"": 0}

    def number(self, word: str) -> int:
        return self.numbers.setdefault(word, len(self.numbers))

    def close(self, language: str, counts: Array) -> None:
        """Look at every word; `counts` says how often each was met."""
        self.spelt = list(self.numbers)
        folded: dict[str, int] = {}
        self.folded = np.array([folded.setdefault(word.casefold(), len(folded)) for word in self.spelt])
        self.folds = list(folded)
        often = np.bincount(self.folded, counts)
        whole = {word for word, count in zip(self.folds, often, strict=True) if count}  # others are parts of words
        lemmas = [_lemma(word, whole) if language == "en" else word for word in self.folds]
        self.lemma = np.array([folded[word] for word in lemmas])[self.folded]
        self.endings = np.array([_ending(word) for word in self.folds])[self.folded]
        self.classes = np.array([_classes(word) for word in self.spelt])
        stop = self._stop_words(language, often)
        self.content = np.array([_tells(word) and word not in stop for word in self.folds])[self.folded]

    def _stop_words(self, language: str, often: Array) -> set[str]:
        if language == "en":
            return set(files("ffscope.report").joinpath("stop_words.txt").read_text(encoding="utf-8").split())
        return {self.folds[number] for number in np.argsort(-often, kind="stable")[:_FREQUENT]}


def _classes(word: str) -> list[bool]:
    return [bool(shape.fullmatch(word)) for shape in _SHAPES.values()]


def _lemma(word: str, known: set[str]) -> str:
    """Cheap: a common English ending is taken off where the text has the rest as a word of its own."""
    if len(word) > 4 and word.isalpha() and not word.endswith(("ss", "us", "is")):
        for ending, instead in _ENDINGS:
            rest = word.removesuffix(ending) + instead
            if word.endswith(ending) and len(rest) > 2 and rest in known:
                return rest
    return word


def _ending(word: str) -> int:
    """The last three letters of a word that is long enough to have an ending, as a number; -1 for others."""
    if len(word) < 6 or not word.isalpha():
        return -1
    return int.from_bytes(word[-3:].encode()[:7], "big")  # three letters of an alphabet take at most 6 bytes


def _tells(word: str) -> bool:
    """Whether a word may say what a text is about: it has letters, and more than two where its script is spelt."""
    if not any(character.isalpha() for character in word):
        return False
    return len(word) > 2 or bool(regex.match(rf"[{_UNSPACED}]", word, regex.VERSION1))
