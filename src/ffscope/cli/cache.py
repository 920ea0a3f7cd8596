"""`ffscope cache`: list or remove the models in the user's cache."""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ffscope.cli.parameters import Json
from ffscope.cli.progress_output import out
from ffscope.cli.signature import command
from ffscope.tokens import visible

if TYPE_CHECKING:
    from ffscope.models.model_cache import CachedModel


@command()
def cache(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...",
            help="Only these models: their names in the list, or the names of the files they were converted from.",
            show_default=False,
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Remove the models: all, or only those named.")] = False,
    json_: Json = False,
) -> None:
    """List the converted models in the user's cache, or remove them with --clear.

    A .gguf file is converted when it is first loaded, so that later loads take seconds. A removed model is converted again when
    needed. The cache is ~/.cache/ffscope, or the folder named by FFSCOPE_CACHE.
    """
    from ffscope.models import model_cache

    entries = (model_cache.clear if clear else model_cache.select)(names or [])
    if json_:
        _print_json(entries, removed=clear)
    elif not entries:
        out.print(f"{model_cache.cache_folder()} has no converted models.", markup=False, soft_wrap=True)
    else:
        _print_table(entries, removed=clear)


def _print_json(entries: "list[CachedModel]", *, removed: bool) -> None:
    rows = [
        {
            "name": entry.name,
            "path": str(entry.path),
            "source": entry.source,
            "bytes": entry.size,
            "last_use": datetime.fromtimestamp(entry.last_use).astimezone().isoformat(timespec="seconds"),
        }
        for entry in entries
    ]
    out.print_json(json.dumps({"models": rows, "bytes": sum(entry.size for entry in entries), "removed": removed}))


def _print_table(entries: "list[CachedModel]", *, removed: bool) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (("name", "left"), ("from", "left"), ("size", "right"), ("last use", "left")):
        table.add_column(column, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for entry in entries:
        used = datetime.fromtimestamp(entry.last_use).strftime("%Y-%m-%d %H:%M")
        source = Text(visible(entry.source, longest=None))
        table.add_row(Text(entry.name), source, f"{entry.size / 1e6:,.0f} MB", used)
    out.print(table)
    total = f"{sum(entry.size for entry in entries) / 1e6:,.0f} MB"
    line = f"Removed {total} from" if removed else f"{total} in"
    out.print(f"{line} {entries[0].path.parent}", markup=False, soft_wrap=True)
