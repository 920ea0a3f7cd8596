"""Strings with a secret part, and random strings of the same format."""

import re
import string
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice, product
from math import log2, prod
from pathlib import Path

import numpy as np

from ffscope.errors import InputError

_ALPHABETS = (string.digits, string.ascii_lowercase, string.ascii_uppercase)
_LINE = re.compile(r"(?P<before>[^{}]*)\{(?P<secret>[^{}]+)\}(?P<after>[^{}]*)")
_EXAMPLE = "my PIN is {4711}"


@dataclass(frozen=True)
class Canary:
    """A string, whose secret part may be any string of its format: digits for digits, letters for letters of the same case."""

    before: str
    secret: str
    after: str = ""

    @classmethod
    def parse(cls, line: str, name: str = "The canary") -> "Canary":
        """A string with its secret part in braces; errors call it by this name."""
        match = _LINE.fullmatch(line)
        if match is None:
            raise InputError(f"{name} has no secret part, or several. Expected one in braces, such as {_EXAMPLE}.")
        canary = cls(**match.groupdict())
        if canary.size == 1:
            raise InputError(
                f"The secret part of {name[0].lower()}{name[1:]} has no digit and no letter from a to z, so no other string has "
                f"its format. Expected some, such as {_EXAMPLE}."
            )
        return canary

    @property
    def text(self) -> str:
        """The whole string."""
        return self.with_secret(self.secret)

    def with_secret(self, secret: str) -> str:
        """The string with another secret part."""
        return f"{self.before}{secret}{self.after}"

    @property
    def _alphabets(self) -> list[str]:
        """The characters that may be at each place of the secret part."""
        return [
            next((alphabet for alphabet in _ALPHABETS if character in alphabet), character) for character in self.secret
        ]

    @property
    def size(self) -> int:
        """The number of strings of its format, itself included."""
        return prod(map(len, self._alphabets))

    @property
    def space(self) -> float:
        """The same as a number of bits."""
        return sum(log2(len(alphabet)) for alphabet in self._alphabets)

    def candidates(self, count: int, seed: tuple[int, ...]) -> list[str]:
        """Other strings of its format: all, if there are at most `count`, or else so many different ones at random."""
        if self.size - 1 <= count:
            secrets: Iterable[str] = map("".join, product(*self._alphabets))
        else:
            secrets = dict.fromkeys(islice(self._draws(seed), 2 * count + 100))
        others = (secret for secret in secrets if secret != self.secret)
        return [self.with_secret(secret) for secret in islice(others, count)]

    def _draws(self, seed: tuple[int, ...]) -> Iterable[str]:
        generator = np.random.default_rng(seed)
        lengths = [len(alphabet) for alphabet in self._alphabets]
        while True:
            drawn = generator.integers(lengths).tolist()
            yield "".join(alphabet[number] for alphabet, number in zip(self._alphabets, drawn, strict=True))


def read_canaries(path: Path) -> list[Canary]:
    """The canaries of a file, one a line; empty lines are left out."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise InputError(
            f"{path} cannot be read: {reason}. Expected a text file with one string a line, such as {_EXAMPLE}."
        ) from error
    canaries = [Canary.parse(line, f"Line {number} of {path}") for number, line in enumerate(lines, 1) if line.strip()]
    if not canaries:
        raise InputError(f"{path} has no canaries. Expected one string a line, such as {_EXAMPLE}.")
    return canaries
