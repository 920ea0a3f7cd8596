"""What an option's field carries beside its type and default, and the checks that follow from it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from ffscope.errors import InputError


@dataclass(frozen=True)
class Help:
    """A field's help, its range, and how the command line spells it where that is not its name with dashes."""

    text: str
    min: int | float | None = None
    max: int | float | None = None
    choices: Callable[[], Sequence[str]] | None = None  # asked when the command line is made
    flag: str | None = None
    metavar: str | None = None
    envvar: str | None = None


@dataclass(frozen=True)
class OptionField:
    """One field of an options dataclass, as the command line and the manifest read it."""

    name: str
    type: Any
    default: Any
    help: Help

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is MISSING

    @property
    def flag(self) -> str:
        """How the command line spells it."""
        return self.help.flag or f"--{self.name.replace('_', '-')}"


def option_fields(options: type) -> Iterator[OptionField]:
    """The fields of an options dataclass that carry a Help, in their order."""
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        if get_origin(hints[field.name]) is Annotated:
            kind, *notes = get_args(hints[field.name])
            helps = [note for note in notes if isinstance(note, Help)]
            if helps:
                yield OptionField(field.name, kind, field.default, helps[0])


class Checked:
    """A base for options dataclasses: a value that is not in its field's range or among its choices is refused with a sentence."""

    def __post_init__(self) -> None:
        for field in option_fields(type(self)):
            value = getattr(self, field.name)
            expected = None if value is None else _expected(field, value)
            if expected is not None:
                raise InputError(f"{field.name} is {value!r}. Expected {expected}.")


def _expected(field: OptionField, value: Any) -> str | None:
    """What a field takes, where a value is not that."""
    low, high = field.help.min, field.help.max
    if get_origin(field.type) is Literal:
        return None if value in get_args(field.type) else f"one of {', '.join(map(str, get_args(field.type)))}"
    if low is None and high is None:
        return None
    if isinstance(value, int | float) and (low is None or value >= low) and (high is None or value <= high):
        return None
    ends = f"{low:g} to {high:g}" if low is not None and high is not None else ""
    return ends or (f"at least {low:g}" if low is not None else f"at most {high:g}")


class StudyOptions(Checked):
    """Options that hold for a whole study: one that is left out is what the study was made with, or else the default."""
