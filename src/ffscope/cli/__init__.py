"""The command line: parse, call the library, print."""

# Imported in the order of --help: commands that make a study, its stages, the comparison of two, edits of a model, commands that
# read a study, the cache.
import ffscope.cli.commands

# isort: split
import ffscope.cli.stage_commands

# isort: split
import ffscope.cli.lens

# isort: split
import ffscope.cli.diff

# isort: split
import ffscope.cli.edit

# isort: split
import ffscope.cli.explore

# isort: split
import ffscope.cli.status

# isort: split
import ffscope.cli.cache  # noqa: F401 - their commands
from ffscope.cli.app import app, main

__all__ = ["app", "main"]
