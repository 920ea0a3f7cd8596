"""The code blocks of the documentation: found in a page, run, and their outputs written back.

A ```console block has commands after `$ `, each with the output that follows it. A ```python block shares its names with those
before it on the page; a ```text block marked `<!-- output -->` after it is what it prints. A comment above a block may say:

- `<!-- not run: REASON -->`: it needs a network, a GPU, a server …; only its commands and options are checked.
- `<!-- bundled -->`: it needs the bundled model, and is run by docs/tutorial.py and the slow tests.
"""

import io
import re
import shlex
from collections.abc import Iterable
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_MARK = re.compile(r"<!-- (?:not run: (?P<reason>.+)|(?P<mark>bundled|output)) -->")
WIDTH = 100  # of the terminal that the outputs are printed for


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its lines, the number of the first (from 0), and what the comment above it says."""

    page: Path
    language: str
    lines: tuple[str, ...]
    start: int
    not_run: str = ""
    mark: str = ""

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines)

    @property
    def commands(self) -> list[str]:
        """The commands of a console block, without the prompt."""
        return [line.removeprefix("$ ") for line in self.lines if line.startswith("$ ")]

    def __str__(self) -> str:
        return f"{self.page.name}:{self.start}"


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in their order."""
    rows: list[Block] = []
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    while number < len(lines):
        fence = re.fullmatch(r"```(\w*)", lines[number])
        if fence:
            end = lines.index("```", number + 1)
            match = _MARK.fullmatch(lines[number - 1]) if number else None
            block = Block(page, fence[1], tuple(lines[number + 1 : end]), number + 1)
            rows.append(replace(block, not_run=match["reason"] or "", mark=match["mark"] or "") if match else block)
            number = end
        number += 1
    return rows


def run_command(command: str) -> str:
    """What a command of ffscope prints, run in this process."""
    from ffscope.cli import app
    from ffscope.cli.progress_output import out

    program, *words = shlex.split(command, comments=True)
    if program != "ffscope":
        raise ValueError(f"Only ffscope's own commands are run; mark the block as not run: {command}")
    out.width = WIDTH
    with redirect_stdout(io.StringIO()) as printed:
        status = app(words, standalone_mode=False)
    if status:
        raise RuntimeError(f"{command} ended with status {status}:\n{printed.getvalue()}")
    return printed.getvalue()


def run_block(block: Block, names: dict[str, Any]) -> tuple[str, ...]:
    """Run a block; returns the lines that a console block should have, or those that a Python block prints."""
    if block.language == "python":
        with redirect_stdout(io.StringIO()) as printed:
            exec(compile(block.text, str(block), "exec"), names)
        return _lines(printed.getvalue())
    return tuple(line for command in block.commands for line in (f"$ {command}", *_lines(run_command(command))))


def _lines(printed: str) -> tuple[str, ...]:
    """The lines of an output, without the times of searches, which differ from run to run."""
    return tuple(re.sub(r" \(\d+ ms\)", "", line).rstrip() for line in printed.rstrip().splitlines())


def with_outputs(page: Path, mark: str) -> str:
    """The page with its console blocks and outputs as they are now; runs the blocks with this mark."""
    lines = page.read_text(encoding="utf-8").splitlines()
    names: dict[str, Any] = {}
    changes: list[tuple[Block, Iterable[str]]] = []
    printed: tuple[str, ...] = ()
    for block in blocks(page):
        if block.mark == mark and not block.not_run:
            printed = run_block(block, names)
            if block.language == "console":
                changes.append((block, printed))
        elif block.mark == "output":
            changes.append((block, printed))
    for block, new in reversed(changes):
        lines[block.start : block.start + len(block.lines)] = new
    return "\n".join(lines) + "\n"


def same_output(expected: str, actual: str) -> bool:
    """Whether two texts differ at most in the last digits of numbers, as machines do."""
    number = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
    if number.sub("#", expected) != number.sub("#", actual):
        return False
    pairs = zip(number.findall(expected), number.findall(actual), strict=True)
    return all(_close(float(first.replace(",", "")), float(second.replace(",", ""))) for first, second in pairs)


def _close(first: float, second: float) -> bool:
    return abs(first - second) <= max(0.02 * max(abs(first), abs(second)), 0.02)
