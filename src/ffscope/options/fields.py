"""The help and range of an option, and checks of its value."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from ffscope.errors import InputError


@dataclass(frozen=True)
class Help:
    """A field's help, its range, and its flag on the command line if that is not its name with dashes."""

    text: str
    min: int | float | None = None
    max: int | float | None = None
    choices: Callable[[], Sequence[str]] | None = None  # called when the command line is built
    flag: str | None = None
    metavar: str | None = None
    envvar: str | None = None


@dataclass(frozen=True)
class OptionField:
    """One field of an options dataclass."""

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
        """Its flag on the command line."""
        return self.help.flag or f"--{self.name.replace('_', '-')}"


def option_fields(options: type) -> Iterator[OptionField]:
    """The fields of an options dataclass that have a Help, in order."""
    hints = get_type_hints(options, include_extras=True)
    for field in fields(options):
        if get_origin(hints[field.name]) is Annotated:
            kind, *annotations = get_args(hints[field.name])
            helps = [annotation for annotation in annotations if isinstance(annotation, Help)]
            if helps:
                yield OptionField(field.name, kind, field.default, helps[0])


class Checked:
    """Base class of options dataclasses: raises InputError for a value outside its field's range or choices."""

    def __post_init__(self) -> None:
        for field in option_fields(type(self)):
            value = getattr(self, field.name)
            expected = None if value is None else _expected(field, value)
            if expected is not None:
                raise InputError(f"{field.name} is {value!r}. Expected {expected}.")


def _expected(field: OptionField, value: Any) -> str | None:
    """The values that a field accepts, or None if it accepts this one."""
    low, high = field.help.min, field.help.max
    choices = get_args(field.type) if get_origin(field.type) is Literal else field.help.choices and field.help.choices()
    if choices:
        return None if value in choices else f"one of {', '.join(map(str, choices))}"
    if low is None and high is None:
        return None
    if isinstance(value, int | float) and (low is None or value >= low) and (high is None or value <= high):
        return None
    ends = f"{low:g} to {high:g}" if low is not None and high is not None else ""
    return ends or (f"at least {low:g}" if low is not None else f"at most {high:g}")


class StudyOptions(Checked):
    """Options that are the same for a whole study: if left out, the value stored in the study is used, or else the default."""
