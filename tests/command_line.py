"""The command line, called in this process: importing torch anew takes longer than nearly every command."""

import importlib
import io
import sys
import traceback
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess

import pytest

from ffscope.cli import main


def ffscope(*args):
    """What `ffscope ARGS` prints, and its exit code."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["ffscope", *map(str, args)])
        patch.setattr(importlib.import_module("ffscope.cli.app"), "_debugging", False)
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        except Exception:
            traceback.print_exc()
            code = 1
    return CompletedProcess(args, code, out.getvalue(), err.getvalue())
