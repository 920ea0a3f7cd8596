"""Patterns of personal data in a text: mail addresses, phone numbers, card numbers, keys; and the text with these masked."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MAIL = re.compile(r"[\w.%+-]+@[\w-]+(?:\.[\w-]+)*\.[a-zA-Z]{2,}")
_CARD = re.compile(r"(?<![\d.-])[2-6]\d(?:[ -]?\d){11,17}(?![\d-])")
_PHONES = (
    re.compile(r"(?<![\w+])\+\d[\d ().-]{6,20}\d(?!\d)"),
    re.compile(r"(?<![\w.-])(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}(?![\w-])"),
    re.compile(r"(?<![\w.,-])(?<!\d )\(?0\d{1,4}\)?[ /-]\d{2,}(?:[ -]?\d{2,}){1,4}(?![\w-])"),
)
_KEYS = (
    re.compile(r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9])"),
    re.compile(r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{20,}"),
    re.compile(r"(?<![A-Za-z0-9])(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}"),
    re.compile(r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    re.compile(r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{35}"),
    re.compile(r"(?<![A-Za-z0-9])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]+"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*"),
    # What follows a word such as "password", if it has a digit.
    re.compile(r"(?i:(?:key|token|secret|password)\s*(?:is|=|:)\s*[\"'“]?)(?P<item>(?=\S*\d)[^\s\"'”]{8,})"),
)
_PHONE_DIGITS = range(8, 16)


@dataclass(frozen=True)
class PersonalItem:
    """An item of personal data: the kind, and where it is in the text."""

    kind: str
    start: int
    end: int

    def overlap(self, start: int, end: int) -> int:
        """How many of its characters are in a range of the text."""
        return max(0, min(self.end, end) - max(self.start, start))


def find_personal(text: str) -> list[PersonalItem]:
    """The items of a text, in order. Of overlapping ones the first kind is kept: mail address, key, card number, phone number."""
    items: list[PersonalItem] = []
    for item in _candidates(text):
        if not any(item.overlap(other.start, other.end) for other in items):
            items.append(item)
    return sorted(items, key=lambda item: item.start)


def _candidates(text: str) -> Iterator[PersonalItem]:
    yield from (PersonalItem("mail address", *match.span()) for match in _MAIL.finditer(text))
    for pattern in _KEYS:
        group = "item" if "item" in pattern.groupindex else 0
        yield from (PersonalItem("key", *match.span(group)) for match in pattern.finditer(text))
    yield from (PersonalItem("card number", *match.span()) for match in _CARD.finditer(text) if has_luhn(match[0]))
    for pattern in _PHONES:
        for match in pattern.finditer(text):
            if sum(map(str.isdigit, match[0])) in _PHONE_DIGITS:
                yield PersonalItem("phone number", *match.span())


def has_luhn(number: str) -> bool:
    """Whether the last digit is the check digit of the others (Luhn's algorithm, ISO/IEC 7812)."""
    digits = [int(character) for character in reversed(number) if character.isdigit()]
    doubled = (2 * digit - 9 * (digit > 4) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def items_in(text: str, start: int, end: int) -> list[PersonalItem]:
    """The items of which at least half is in a range of the text."""
    return [item for item in find_personal(text) if 2 * item.overlap(start, end) >= item.end - item.start]


def masked(*parts: str) -> list[str]:
    """Consecutive parts of a text, with what each has of an item replaced by the item's kind in brackets."""
    items = find_personal("".join(parts))
    shown, start = [], 0
    for part in parts:
        shown.append(_masked_part(part, start, items))
        start += len(part)
    return shown


def _masked_part(part: str, start: int, items: list[PersonalItem]) -> str:
    pieces, at = [], 0
    for item in items:
        if item.overlap(start, start + len(part)):
            begin, end = max(item.start - start, 0), min(item.end - start, len(part))
            pieces += [part[at:begin], f"[{item.kind}]"]
            at = end
    return "".join([*pieces, part[at:]])
