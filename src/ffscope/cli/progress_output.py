"""Progress on the command line: a spinner, bars, or lines in a log."""

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
out.width = max(out.width, 80)  # narrower tables are unreadable
err = Console(stderr=True, highlight=False)
_LOG_FIRST, _LOG_EVERY = 2.0, 10.0  # seconds to the first line of progress without a terminal, and between lines


@contextmanager
def working(message: str) -> Iterator[None]:
    """Show a message during slow work: a spinner on a terminal, a line elsewhere. Other libraries' output is silenced."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    message = visible(message, longest=None)  # the model's source comes from the study, which may be another person's
    if not err.is_terminal:
        err.print(message, markup=False)
    with err.status(Text(message)) if err.is_terminal else nullcontext():
        from transformers.utils import logging as transformers_logging

        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[_LogHandler()])
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        yield


class _LogHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("ffscope") or record.levelno >= logging.WARNING:
            err.print(record.getMessage(), markup=False, soft_wrap=True)


@contextmanager
def showing_progress(
    interrupted: str = "Finished work is saved; run the same command to resume.",
) -> Iterator[ProgressCallback]:
    """Like `_progress`, with a message on interruption, since typer exits silently."""
    try:
        with _progress() as callback:
            yield callback
    except KeyboardInterrupt:
        err.print(f"Interrupted. {interrupted}", markup=False)
        raise


@contextmanager
def _progress() -> Iterator[ProgressCallback]:
    """Yields a callback for the stages' progress: a bar on a terminal, a line now and then elsewhere."""
    begun: dict[str, tuple[float, int]] = {}
    if not err.is_terminal:
        lines = _Lines()
        yield lambda progress: lines.update(_with_time_left(progress, begun))
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[message]}", markup=False))
    with Bars(*columns, console=err) as bars:
        tasks: dict[str, Any] = {}

        def update(progress: Progress) -> None:
            progress = _with_time_left(progress, begun)
            if progress.stage not in tasks:
                tasks[progress.stage] = bars.add_task(progress.stage, total=None, message="")
            bars.update(
                tasks[progress.stage],
                completed=progress.done,
                total=progress.total or None,
                message=message(progress),
            )

        yield update


def _with_time_left(progress: Progress, begun: dict[str, tuple[float, int]]) -> Progress:
    """Estimate the time left from the pace so far, for a stage that does not estimate it itself."""
    now = time.monotonic()
    start, first = begun.setdefault(progress.stage, (now, progress.done))
    new = progress.done - first
    if progress.left is not None or not progress.total or progress.done >= progress.total or new <= 0:
        return progress
    return replace(progress, left=(now - start) / new * (progress.total - progress.done))


class _Lines:
    """Lines of progress, for a log."""

    def __init__(self) -> None:
        self.due: dict[str, float] = {}  # by stage: two may run at the same time

    def update(self, progress: Progress) -> None:
        now = time.monotonic()
        if now >= self.due.setdefault(progress.stage, now + _LOG_FIRST) or progress.done == progress.total:
            self.due[progress.stage] = now + _LOG_EVERY
            err.print(f"{progress.stage}: {message(progress)}", markup=False, soft_wrap=True)


def message(progress: Progress) -> str:
    """The progress of a stage in words."""
    text = f"{progress.done:,}{f' of {progress.total:,}' if progress.total else ''} {progress.unit}"
    if progress.rate is not None:
        text += f", {progress.rate:,.0f} prefixes/s"
    if progress.left is not None:
        text += f", {duration(progress.left)} left"
    return text if progress.detail is None else f"{text}; {visible(progress.detail, longest=None)}"


def duration(seconds: float) -> str:
    """A duration in words: 3 min 20 s."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
