"""Untrusted text, shown."""

import pytest

from ffscope.tokens import spelling, visible


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
