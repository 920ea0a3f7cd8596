"""The lemmas of words, from the dictionaries of simplemma."""


def lemmatize(words: list[str], language: str) -> list[str]:
    """The lemma of each word, case-folded; the word itself in a language without a dictionary."""
    from simplemma import lemmatize as lemma_of  # the reading side: a machine that only searches does not need it
    from simplemma.strategies.dictionaries.dictionary_factory import SUPPORTED_LANGUAGES

    if language not in SUPPORTED_LANGUAGES:
        return [word.casefold() for word in words]
    return [(lemma_of(word, lang=language) if word.isalpha() else word).casefold() for word in words]
