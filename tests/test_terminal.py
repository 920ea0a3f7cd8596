"""What a person sees of the progress."""

import io

import pytest
from rich.console import Console

from ffscope.cli import progress_output as terminal
from ffscope.progress import Progress

READING = Progress("reading", 1024, detail="[b]a\x1b.txt, 0.5 of 2.0 MB")
SHOWN = "1,024 sentences; [b]a<001B>.txt, 0.5 of 2.0 MB"


@pytest.fixture
def screen(monkeypatch):
    """What is written to standard error, by a program whose clock stands still until it is set."""
    written, clock = io.StringIO(), [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])

    def console(**options):
        monkeypatch.setattr(terminal, "err", Console(file=written, width=200, **options))
        return written, clock

    return console


def test_a_log_names_what_is_read_after_two_seconds_and_then_every_ten(screen):
    written, clock = screen()
    with terminal.showing_progress() as tell:
        for clock[0] in (0.0, 1.0, 2.5, 3.0, 12.0, 13.0):
            tell(READING)
    assert written.getvalue() == f"reading: {SHOWN}\n" * 2


def test_a_bar_shows_what_is_read_and_obeys_no_name(screen):
    written, _ = screen(force_terminal=True, color_system=None)
    with terminal.showing_progress() as tell:
        tell(READING)
    assert SHOWN in written.getvalue()
