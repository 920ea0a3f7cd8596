"""The command line: parse, call the library, print."""

import ffscope.cli.commands
import ffscope.cli.explore  # noqa: F401 - their commands
from ffscope.cli.app import app, main

__all__ = ["app", "main"]
