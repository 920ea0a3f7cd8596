"""The generated parts of the documentation: commands, public Python names, columns of tables, terms, the example plugin."""

from collections.abc import Callable
from dataclasses import MISSING
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

import ffscope
from ffscope.cli import app
from ffscope.glossary import GLOSSARY
from ffscope.options.fields import option_fields
from ffscope.stages.registry import stages, tables

_PLUGIN = Path(__file__).parents[1] / "examples" / "plugin" / "src" / "ffscope_documents"
_PYTHON_GROUPS = {
    "A model": ("load", "read", "check", "MemoryModel", "Trace", "Finding", "Memory"),
    "A study": (
        "run",
        "triggers",
        "analyse",
        "CorpusOptions",
        "SearchOptions",
        "start_engine",
        "EngineOptions",
        "Study",
    ),
    "An edit": ("edit", "undo", "promote", "Edited", "Promotion"),
    "Its results": ("open", "Results", "memory_page"),
}


def commands() -> dict[str, Any]:
    """Every command by name, as typer parses it."""
    return typer.main.get_command(app).commands  # type: ignore[attr-defined]


def option_names(command: Any) -> set[str]:
    """All spellings of a command's options."""
    names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    return {"-h", "--help", *(name for name in names if name.startswith("-"))}


def command_reference() -> str:
    """A section per command: what it does, its arguments and its options."""
    return "\n\n".join(_command(name, command) for name, command in commands().items())


def _command(name: str, command: Any) -> str:
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    options = [parameter for parameter in command.params if parameter.param_type_name == "option"]
    usage = " ".join(["ffscope", name, *(argument.metavar for argument in arguments), "[OPTIONS]"])
    help_text = " ".join(" ".join(command.help.split()).split("\f"))
    lines = [f"## {name}", f"```text\n{usage}\n```", _escape(help_text)]
    rows = [f"| `{argument.metavar}` | {_escape(argument.help or '')} | required |" for argument in arguments]
    rows += [_option(parameter) for parameter in options if parameter.name != "debug"]
    return "\n\n".join([*lines, "\n".join(["| option | meaning | default |", "| --- | --- | --- |", *rows])])


def _option(parameter: Any) -> str:
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    choices = _choices(parameter.type_descriptor.annotation)
    if choices:
        names += f" {'|'.join(choices)}"
    elif not parameter.is_flag:
        names += f" {parameter.metavar or _PLACEHOLDERS.get(_plain_type(parameter), 'TEXT')}"
    default = "required" if parameter.required else _default(parameter)
    environment = f" Environment: `{parameter.envvar}`." if parameter.envvar else ""
    return f"| `{_escape(names)}` | {_escape(parameter.help or '')}{environment} | {default} |"


_PLACEHOLDERS = {int: "N", float: "N", Path: "PATH"}


def _plain_type(parameter: Any) -> Any:
    annotation = parameter.type_descriptor.annotation
    return next((kind for kind in (annotation, *get_args(annotation)) if kind in _PLACEHOLDERS), str)


def _choices(annotation: Any) -> tuple[str, ...]:
    kinds = (annotation, *get_args(annotation))
    return next((get_args(kind) for kind in kinds if get_origin(kind) is Literal), ())


def _default(parameter: Any) -> str:
    """The default; of an option that a study keeps, the one that applies to a new study."""
    value = parameter.default
    if value is None:
        value = _study_defaults().get(parameter.name)
    if value is None:
        return ""
    if isinstance(value, bool):
        names = parameter.opts if value else parameter.secondary_opts
        return f"`{names[0]}`" if parameter.secondary_opts else "off"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _study_defaults() -> dict[str, Any]:
    fields = [field for stage in stages().values() for kind in stage.options for field in option_fields(kind)]
    return {field.name: field.default for field in fields if field.default is not MISSING}


def python_reference() -> str:
    """The public names, grouped, as directives for mkdocstrings; a name without a group is documented under "More"."""
    errors = tuple(name for name in ffscope.__all__ if name.endswith("Error"))
    grouped = {name for names in _PYTHON_GROUPS.values() for name in names} | set(errors)
    more = tuple(name for name in ffscope.__all__ if name not in grouped)
    groups = {**_PYTHON_GROUPS, **({"More": more} if more else {}), "Errors": errors}
    lines = []
    for title, names in groups.items():
        lines += [f"## {title}", *(f"::: ffscope.{name}" for name in names if name in ffscope.__all__)]
    return "\n\n".join(lines)


def table_reference() -> str:
    """A section per parquet file: what a row is, and the type and meaning of every column."""
    sections = []
    for table in tables().values():
        rows = [f"| `{column.name}` | {_escape(column.type)} | {_escape(column.help)} |" for column in table.columns]
        note = [_escape(table.help)] if table.help else []
        body = "\n".join(["| column | type | meaning |", "| --- | --- | --- |", *rows])
        sections.append("\n\n".join([f"### {table.file}", f"One row per {table.row}.", *note, body]))
    return "\n\n".join(sections)


def glossary() -> str:
    """Every term with its sentence."""
    rows = [f"| **{term}** | {_escape(meaning)} |" for term, meaning in GLOSSARY.items()]
    return "\n".join(["| term | meaning |", "| --- | --- |", *rows])


def plugin_file(name: str) -> str:
    """A file of the example plugin, as a block of code."""
    return f"```python\n{(_PLUGIN / name).read_text(encoding='utf-8').rstrip()}\n```"


def _escape(text: str) -> str:
    """Text for a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


PARTS: dict[str, Callable[[], str]] = {
    "commands": command_reference,
    "python": python_reference,
    "tables": table_reference,
    "glossary": glossary,
    "plugin_stage": lambda: plugin_file("stage.py"),
    "plugin_figure": lambda: plugin_file("figure.py"),
}
