"""What the terminal shows: progress, and the findings of a study."""

import io

import pytest
from rich.console import Console

from ffscope.cli import output
from ffscope.cli import progress_output as terminal
from ffscope.progress import Progress
from ffscope.report.figure import Finding

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


FINDINGS = [
    Finding("Agreement, best layer", "2.5 % in layer 12", "up to 3.5 %", "lower than in the paper"),
    Finding("[b]Hostile\x1b[31m", "1 %", "–", "as in the paper"),
]


def printed(monkeypatch, findings=FINDINGS, **options):
    written = io.StringIO()
    monkeypatch.setattr(output, "out", Console(file=written, color_system=None, highlight=False, **options))
    output.print_summary(findings)
    return written.getvalue()


def test_findings_are_a_table_on_a_wide_terminal(monkeypatch):
    text = printed(monkeypatch, width=140, force_terminal=True)
    lines = [line.split("  ") for line in text.splitlines()]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert ["finding", "this model", "the paper", "reading"] in cells
    assert [*vars(FINDINGS[0]).values()] in cells
    assert "[b]Hostile<001B>[31m" in text


def test_findings_are_a_list_on_a_narrow_terminal(monkeypatch):
    lines = printed(monkeypatch, width=50, force_terminal=True).splitlines()
    assert lines[0].startswith("• Agreement, best layer: 2.5 % in layer 12")
    assert lines[1].startswith("  ")
    assert max(map(len, lines)) <= 50


def test_findings_are_one_line_each_in_a_log(monkeypatch):
    lines = printed(monkeypatch, width=50).splitlines()
    agreement = "• Agreement, best layer: 2.5 % in layer 12 (paper: up to 3.5 %); lower than in the paper"
    assert lines == [agreement, "• [b]Hostile<001B>[31m: 1 % (paper: –); as in the paper"]


@pytest.mark.parametrize("options", [{"width": 140, "force_terminal": True}, {"width": 50, "force_terminal": True}, {}])
def test_no_findings_print_nothing(monkeypatch, options):
    assert printed(monkeypatch, [], **options).strip() == ""
