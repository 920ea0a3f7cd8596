"""The command-line program, and how it reports errors: one sentence each."""

import gc
import sys
from typing import Annotated

import typer
from rich.text import Text

from ffscope.cli.progress_output import err, out
from ffscope.errors import FfscopeError
from ffscope.tokens import visible

app = typer.Typer(
    name="ffscope",
    help="See what the feed-forward layers of a transformer store.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
_debugging = False


def _set_debug(enabled: bool) -> bool:
    global _debugging
    _debugging = _debugging or enabled
    return enabled


def _print_version(requested: bool) -> bool:
    if requested:
        import ffscope

        out.print(f"ffscope {ffscope.__version__}")
        raise typer.Exit
    return requested


Debug = Annotated[bool, typer.Option("--debug", callback=_set_debug, help="Show the traceback of an error.")]


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    pass


def main() -> None:
    """Run the command line. An error prints one sentence to standard error and sets the exit code."""
    gc.set_threshold(50_000, 20, 100)  # the usual frequency takes half a second of importing torch, and frees nothing
    try:
        app()
    except FfscopeError as error:
        if _debugging:
            raise
        _print_error(str(error))
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        if _debugging or (error.name or "ffscope").startswith("ffscope"):
            raise
        _print_error(f"This command needs the package {error.name}, which is not installed here.")
        sys.exit(2)


def _print_error(sentence: str) -> None:
    lines = (visible(line, longest=None) for line in sentence.splitlines())
    err.print(Text("error: ", style="bold red") + Text("\n".join(lines)), soft_wrap=True)
