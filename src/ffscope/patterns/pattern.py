"""A pattern, as the machine, a language model and a person alike write it down."""

from collections.abc import Collection
from dataclasses import dataclass

from ffscope.errors import InputError

KINDS = ("shallow", "semantic")
TRIGGERS = 25  # of a memory that are looked at, as in the paper
LEAST, MOST = 3, 6  # prefixes that a pattern must cover; patterns of a memory
MACHINE = "machine"  # the annotator of what was found without asking anyone


@dataclass(frozen=True)
class Pattern:
    """What some triggers of a memory share. `covers` are the ranks of these triggers, in their order."""

    kind: str
    description: str
    covers: tuple[int, ...]
    p_value: float | None = None  # None where a person says so
    detection: float | None = None  # of a language model's label: how well it tells triggers from random prefixes

    @property
    def support(self) -> int:
        return len(self.covers)


def checked(pattern: Pattern, ranks: Collection[int]) -> Pattern:
    """A pattern that may be written down, given the ranks that its memory's triggers have."""
    if pattern.kind not in KINDS:
        raise InputError(f"A pattern is {' or '.join(KINDS)}, not {pattern.kind!r}.")
    if not pattern.description.strip():
        raise InputError("A pattern has no description. Say in a few words what its prefixes share.")
    foreign = sorted(set(pattern.covers) - set(ranks))
    if foreign:
        raise InputError(
            f"{pattern.description!r} covers prefix {foreign[0]}, but the prefixes are {min(ranks)} to {max(ranks)}."
            if ranks
            else f"{pattern.description!r} covers prefixes of a memory that has none."
        )
    if len(set(pattern.covers)) < LEAST:
        raise InputError(
            f"{pattern.description!r} covers {len(set(pattern.covers))} of the prefixes; a pattern needs at least {LEAST}, "
            "since fewer may share something by chance. Mark more of them, or leave it out."
        )
    return pattern
