"""A pattern, as recorded by the machine, a language model or a person."""

from collections.abc import Collection
from dataclasses import dataclass

from ffscope.errors import InputError

KINDS = ("shallow", "semantic")
TRIGGERS = 25  # triggers per memory that are examined, as in the paper
LEAST, MOST = 3, 6  # the fewest prefixes of a pattern, the most patterns of a memory
MACHINE = "machine"  # the annotator of patterns that were found automatically


@dataclass(frozen=True)
class Pattern:
    """What some triggers of a memory share. `covers` are the ranks of these triggers, in ascending order."""

    kind: str
    description: str
    covers: tuple[int, ...]
    p_value: float | None = None  # None for a person's pattern
    firing_share: float | None = (
        None  # of a surface form: at most this share of all prefixes with it trigger the memory
    )
    detection: float | None = None  # of a language model's label: its balanced accuracy on triggers and random prefixes

    @property
    def support(self) -> int:
        return len(self.covers)


def checked(pattern: Pattern, ranks: Collection[int]) -> Pattern:
    """The pattern, if it is valid for a memory whose triggers have these ranks."""
    if pattern.kind not in KINDS:
        raise InputError(f"The kind of a pattern is {' or '.join(KINDS)}, not {pattern.kind!r}. Choose one of them.")
    if not pattern.description.strip():
        raise InputError("A pattern has no description. Describe in a few words what its prefixes share.")
    unknown = sorted(set(pattern.covers) - set(ranks))
    if unknown:
        raise InputError(
            f"{pattern.description!r} covers prefix {unknown[0]}, but the prefixes are {min(ranks)} to {max(ranks)}."
            if ranks
            else f"{pattern.description!r} covers prefixes, but its memory has no triggers. Remove the pattern."
        )
    if len(set(pattern.covers)) < LEAST:
        raise InputError(
            f"{pattern.description!r} covers {len(set(pattern.covers))} of the prefixes; a pattern needs at least {LEAST}, "
            "since fewer may share something by chance. Mark more of them, or remove the pattern."
        )
    return pattern
