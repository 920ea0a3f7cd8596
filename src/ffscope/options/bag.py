"""Options of several kinds in one place, each found by its type."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ffscope.errors import InputError
from ffscope.options.fields import StudyOptions, option_fields

T = TypeVar("T")


class Options:
    """Options dataclasses by their type: `options(LensOptions).lens`. One that was not given has its defaults."""

    def __init__(self, *given: Any) -> None:
        self._given = {type(options): options for options in given}

    def __call__(self, kind: type[T]) -> T:
        return self._given[kind] if kind in self._given else kind()

    @classmethod
    def parse(cls, kinds: Iterable[type], values: Mapping[str, Any], held: Mapping[str, Any]) -> "Options":
        """From values by the names of fields; where one is None or missing, what a study holds from before, or else the default."""
        wanted = dict.fromkeys(kinds)
        names = sorted({field.name for kind in wanted for field in option_fields(kind)})
        unknown = sorted(values.keys() - set(names))
        if unknown:
            raise InputError(f"There is no {unknown[0]!r} to ask for. Choose from: {', '.join(names)}.")
        chosen = {name: value for name, value in values.items() if value is not None}
        return cls(*(_made(kind, {**held, **chosen} if issubclass(kind, StudyOptions) else chosen) for kind in wanted))


def _made(kind: type, values: Mapping[str, Any]) -> Any:
    names = [field.name for field in option_fields(kind)]
    return kind(**{name: values[name] for name in names if name in values})
