"""Patterns of personal data."""

import pytest

from ffscope.personal import find_personal, has_luhn, items_in, masked


@pytest.mark.parametrize(
    ("text", "kind", "item"),
    [
        ("write to ada.l+x@mail.example.org.", "mail address", "ada.l+x@mail.example.org"),
        ("call +49 30 5550 1847 now", "phone number", "+49 30 5550 1847"),
        ("call (415) 555-0132.", "phone number", "(415) 555-0132"),
        ("call 415-555-0132", "phone number", "415-555-0132"),
        ("call 030 5550 1847", "phone number", "030 5550 1847"),
        ("card 4539 1488 0343 6467 until", "card number", "4539 1488 0343 6467"),
        ("card 378282246310005!", "card number", "378282246310005"),
        ("use sk-q7Xv2Lm9Tz4Kd8Wp1Rb6 here", "key", "sk-q7Xv2Lm9Tz4Kd8Wp1Rb6"),
        ("id AKIAIOSFODNN7EXAMPLE.", "key", "AKIAIOSFODNN7EXAMPLE"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "key", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("password: hunter2hunter2", "key", "hunter2hunter2"),
    ],
)
def test_personal_data_is_found(text, kind, item):
    (match,) = find_personal(text)
    assert (match.kind, text[match.start : match.end]) == (kind, item)


@pytest.mark.parametrize(
    "text",
    [
        "from 1914 to 1918 and 1939 to 1945",
        "on 2001-05-12 at 10:30",
        "card 4539 1488 0343 6468",  # the check digit is wrong
        "3.14159265358979323846",
        "the token is wonderful",
        "a population of 1,234,567 or 12 345 678",
        "ISBN 978-0-306-40615-7",
        "at home @ noon",
    ],
)
def test_other_text_is_not(text):
    assert find_personal(text) == []


def test_check_digits():
    assert has_luhn("79927398713")
    assert not any(has_luhn(f"7992739871{digit}") for digit in "012456789")


def test_an_item_across_parts_is_masked_in_each():
    assert masked("Write to ada@", "mail.org", " today.") == ["Write to [mail address]", "[mail address]", " today."]
    assert masked("a", "b") == ["a", "b"]
    text = "x 4539 1488 0343 6467 or ada@mail.org y"
    assert masked(text) == ["x [card number] or [mail address] y"]
    assert "".join(masked(text[:9], text[9:20], text[20:])).count("[card number]") == 3


def test_an_item_is_in_a_part_that_has_half_of_it():
    text = "to ada@mail.org now"
    assert [item.kind for item in items_in(text, 8, 15)] == ["mail address"]
    assert items_in(text, 12, 19) == []
