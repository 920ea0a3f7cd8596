"""Commands whose options come from dataclasses: each field becomes an option, with its help and range."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import is_dataclass
from inspect import Parameter
from typing import Annotated, Any, Literal, Union, get_args, get_type_hints

import typer

from ffscope.cli.app import Debug, app
from ffscope.options.fields import OptionField, StudyOptions, option_fields

Command = Callable[..., None]


def command(
    name: str | None = None, *, help: str | None = None, more: Iterable[type] = ()
) -> Callable[[Command], Command]:
    """Make a function a command of ffscope.

    A parameter whose type is an options dataclass becomes one option per field on the command line. Fields of the dataclasses
    in `more` go into the function's parameter `options`, by name. Every command takes --debug.
    """

    def register(function: Command) -> Command:
        expanded = _expanded(function, tuple(more))
        expanded.__name__ = name or function.__name__
        app.command(name, help=help or inspect.getdoc(function))(expanded)
        return function

    return register


def _expanded(function: Command, more: tuple[type, ...]) -> Command:
    hints = get_type_hints(function, include_extras=True)
    declared = inspect.signature(function).parameters
    kinds = {name: hints[name] for name in declared if is_dataclass(hints[name])}

    def run(**values: Any) -> None:
        arguments = {name: values[name] for name in declared if name in values and name not in kinds}
        for name, kind in kinds.items():
            arguments[name] = kind(**{field.name: values[field.name] for field in option_fields(kind)})
        if more:
            arguments["options"] = {field.name: values[field.name] for kind in more for field in option_fields(kind)}
        function(**arguments)

    parameters: dict[str, Parameter] = {}
    for name, parameter in declared.items():
        for option in _options(name, parameter.replace(annotation=hints[name]), kinds, more):
            parameters.setdefault(option.name, option.replace(kind=Parameter.KEYWORD_ONLY))
    parameters["debug"] = Parameter("debug", Parameter.KEYWORD_ONLY, annotation=Debug, default=False)
    run.__doc__ = function.__doc__
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _options(name: str, parameter: Parameter, kinds: dict[str, type], more: tuple[type, ...]) -> Iterator[Parameter]:
    """The command-line options of a function's parameter: itself, or the fields of its dataclass."""
    if name in kinds:
        yield from (_parameter(field, recorded=False) for field in option_fields(kinds[name]))
    elif name == "options":
        for kind in more:
            yield from (_parameter(field, recorded=issubclass(kind, StudyOptions)) for field in option_fields(kind))
    else:
        yield parameter


def _parameter(field: OptionField, *, recorded: bool) -> Parameter:
    """One option. One that a study records defaults to None, since the study may have another value than the default."""
    kind, help = _type(field), field.help
    option = typer.Option(
        field.flag, help=help.text, min=help.min, max=help.max, metavar=help.metavar, envvar=help.envvar
    )
    if recorded:
        kind = Union[kind, None]  # noqa: UP007 - made at run time
    default = Parameter.empty if field.is_required else None if recorded else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, option], default=default)


def _type(field: OptionField) -> Any:
    """A field's type on the command line, where a list of numbers is a string."""
    if field.help.choices is not None:
        return Literal[tuple(field.help.choices())]
    return Union[str, None] if list[int] in get_args(field.type) else field.type  # noqa: UP007 - made at run time
