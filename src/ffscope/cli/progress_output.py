"""What the command line shows while something takes long: a spinner, bars, or lines in a log."""

import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bars
from rich.text import Text

from ffscope.progress import Progress, ProgressCallback
from ffscope.tokens import visible

out = Console(highlight=False)
out.width = max(out.width, 80)  # a narrower table says nothing
err = Console(stderr=True, highlight=False)
_LOG_FIRST, _LOG_EVERY = 2.0, 10.0  # seconds to the first line of progress without a terminal, and between lines


@contextmanager
def working(what: str) -> Iterator[None]:
    """Say what takes long: a spinner on a terminal, a line elsewhere. Only our own word is heard meanwhile."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    what = visible(what, longest=None)  # a study says where its model is, and may be another person's
    if not err.is_terminal:
        err.print(what, markup=False)
    with err.status(Text(what)) if err.is_terminal else nullcontext():
        from transformers.utils import logging as theirs

        theirs.set_verbosity_error()
        theirs.disable_progress_bar()
        logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[_Said()])
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        yield


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("ffscope") or record.levelno >= logging.WARNING:
            err.print(record.getMessage(), markup=False, soft_wrap=True)


@contextmanager
def showing_progress() -> Iterator[ProgressCallback]:
    """As `_progress`; who interrupts a study is told what becomes of it, since typer ends the program without a word."""
    try:
        with _progress() as tell:
            yield tell
    except KeyboardInterrupt:
        err.print("Interrupted. What the study has is kept: the same command goes on with it.")
        raise


@contextmanager
def _progress() -> Iterator[ProgressCallback]:
    """Gives a function to be told how far the stages are: a bar on a terminal, a line now and then elsewhere."""
    begun: dict[str, tuple[float, int]] = {}
    if not err.is_terminal:
        lines = _Lines()
        yield lambda progress: lines.tell(_with_time_left(progress, begun))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}", markup=False))
    with Bars(*columns, console=err) as bars:
        tasks: dict[str, Any] = {}

        def tell(progress: Progress) -> None:
            progress = _with_time_left(progress, begun)
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage, total=None, said="")
            bars.update(
                tasks[progress.stage], completed=progress.done, total=progress.total or None, said=_said(progress)
            )

        yield tell


def _with_time_left(progress: Progress, begun: dict[str, tuple[float, int]]) -> Progress:
    """A stage that does not know how long it will still take gets the time at its pace so far."""
    now = time.monotonic()
    start, first = begun.setdefault(progress.stage, (now, progress.done))
    new = progress.done - first
    if progress.left is not None or not progress.total or progress.done >= progress.total or new <= 0:
        return progress
    return replace(progress, left=(now - start) / new * (progress.total - progress.done))


class _Lines:
    """Lines of progress, for a log."""

    def __init__(self) -> None:
        self.due = time.monotonic() + _LOG_FIRST

    def tell(self, progress: Progress) -> None:
        now = time.monotonic()
        if now >= self.due or progress.done == progress.total:
            self.due = now + _LOG_EVERY
            err.print(f"{progress.stage}: {_said(progress)}", markup=False, soft_wrap=True)


def _said(progress: Progress) -> str:
    said = f"{progress.done:,}{f' of {progress.total:,}' if progress.total else ''} {progress.unit}"
    if progress.rate is not None:
        said += f", {progress.rate:,.0f} prefixes/s"
    if progress.left is not None:
        said += f", {span(progress.left)} left"
    return said if progress.detail is None else f"{said}; {visible(progress.detail, longest=None)}"


def span(seconds: float) -> str:
    """A time as people say it: 3 min 20 s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
