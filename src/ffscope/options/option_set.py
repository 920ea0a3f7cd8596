"""A set of options dataclasses, each looked up by its type."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from ffscope.errors import InputError
from ffscope.options.fields import StudyOptions, option_fields

T = TypeVar("T")


class Options:
    """Options dataclasses by type: `options(LensOptions).lens`. A type that is not in the set has its defaults."""

    def __init__(self, *options: Any) -> None:
        self._by_type = {type(instance): instance for instance in options}

    def __call__(self, kind: type[T]) -> T:
        return self._by_type[kind] if kind in self._by_type else kind()

    @classmethod
    def parse(cls, kinds: Iterable[type], values: Mapping[str, Any], stored: Mapping[str, Any]) -> "Options":
        """From values by field name. A field that is None or missing has the value stored in the study, or else its default."""
        kinds = list(dict.fromkeys(kinds))
        names = sorted({field.name for kind in kinds for field in option_fields(kind)})
        unknown = sorted(values.keys() - set(names))
        if unknown:
            raise InputError(f"There is no option {unknown[0]!r}. The options are: {', '.join(names)}.")
        chosen = {name: value for name, value in values.items() if value is not None}
        return cls(
            *(_create(kind, {**stored, **chosen} if issubclass(kind, StudyOptions) else chosen) for kind in kinds)
        )


def _create(kind: type, values: Mapping[str, Any]) -> Any:
    names = [field.name for field in option_fields(kind)]
    return kind(**{name: values[name] for name in names if name in values})
