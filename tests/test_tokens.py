"""Displaying untrusted text."""

import pytest

from ffscope.tokens import by_spelling, find_tokens, spelling, visible, vocabulary_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (" the", "␣the"),
        ("a b ", "a b␣"),
        ("  ", "␣␣"),
        ("a\nb\tc", "a⏎b⇥c"),
        ("\x1b[31mred", "<001B>[31mred"),
        ("\u202eright to left", "<202E>right to left"),
        ("nul\x00", "nul<0000>"),
        ("\ud800", "<D800>"),
        ("line\u2028break", "line<2028>break"),
        ("\u00a0a\u2009b", "⍽a⍽b"),
        ("[bold]", "[bold]"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_nothing_hidden_and_nothing_obeyed(text, shown):
    assert visible(text) == shown


def test_without_a_tokenizer_a_token_is_its_number():
    assert spelling(None, 17) == "#17"


def test_a_token_as_text(tokenizer):
    assert spelling(tokenizer, 4) == "␣"
    assert spelling(tokenizer, 5) == "a"


def test_half_a_character_is_shown_as_its_bytes():
    class Halves:
        def decode(self, ids):
            return "\N{REPLACEMENT CHARACTER}"

        def convert_ids_to_tokens(self, token):
            return ["ĠæĿ", "<0xE6>", None][token]

    assert [spelling(Halves(), token) for token in range(3)] == ["␣<E6><9D>", "<0xE6>", "#2"]


TEXTS = [" was", "was", "\n", "a\tb", "\u200b", "\u202ex", "\u00a0", "<b>", "#1", "x" * 100, "␣is", " is"]


def test_every_spelling_leads_back_to_its_token():
    vocabulary = by_spelling([*map(visible, TEXTS), "␣<E6><9D>", "#13"])
    for token, text in enumerate(TEXTS):
        if text != "#1":
            assert token in find_tokens(vocabulary, visible(text))
            assert token in find_tokens(vocabulary, text)
    assert find_tokens(vocabulary, "␣was") == find_tokens(vocabulary, " was") == [0]
    assert find_tokens(vocabulary, "was") == [1]
    assert find_tokens(vocabulary, "⏎") == find_tokens(vocabulary, "\n") == [2]
    assert find_tokens(vocabulary, "<200B>") == [4]
    assert find_tokens(vocabulary, "␣<E6><9D>") == [12]
    assert find_tokens(vocabulary, "nothing") == []


def test_a_number_is_always_an_id_and_a_shared_spelling_names_all():
    vocabulary = by_spelling(map(visible, TEXTS))
    assert find_tokens(vocabulary, "#1") == [1]  # though the text of token 8 is "#1"
    assert find_tokens(vocabulary, "#99") == [99]
    assert find_tokens(vocabulary, "␣is") == [10, 11]


def test_the_vocabulary_of_a_tokenizer_is_spelt_once(tokenizer):
    vocabulary = vocabulary_of(tokenizer, 67)
    assert vocabulary is vocabulary_of(tokenizer, 67)
    assert all(token in find_tokens(vocabulary, spelling(tokenizer, token)) for token in range(67))
