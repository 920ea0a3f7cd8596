"""A figure or table of the report as one row: its numbers, its chart and its sentences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ffscope.queries.tables import Tables
from ffscope.report.series import Source

Entry = dict[str, Any]  # of the summary: the numbers that one figure shows
# What the paper states about a series: first layer, last layer, lowest and highest value. Layers count from 1, as in the paper.
Stated = tuple[int, int, float, float]

PAPER_LAYERS, PAPER_VOCABULARY = 16, 270_000  # of the model that Geva et al. (2021) studied


@dataclass(frozen=True)
class Finding:
    """One row of the report's "In short": a quantity, its value in this model and in the paper, and how the two compare."""

    finding: str  # the quantity
    model: str  # its value in this model
    paper: str  # its value in the paper
    reading: str  # the comparison, in a few words


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A figure (with `chart`) or a table (with `rows`) of the report.

    `series` computes its numbers from a study's tables, or returns None if the study has none. Everything else is made from
    these numbers alone. `stage` names the stage whose table must have rows before `series` is called; without it, `series` is
    always called.
    """

    name: str
    title: str  # names the quantity
    series: Callable[[Source], Entry | None]
    sentence: Callable[[Entry], str]  # what it shows, and how that compares with the paper
    stage: str | None = None
    number: int | None = None  # in the paper: of a figure if there is a chart, else of a table
    chart: Callable[[Entry], Any] | None = None  # an altair chart; altair is imported only when it is drawn
    how_to_read: str = ""  # one line on axes, bars, bands and boxes; a figure with a chart must have it
    terms: Mapping[str, str] = field(default_factory=dict)  # terms used only here, explained below the figure
    findings: Callable[[Entry], Sequence[Finding]] | None = None  # its rows of "In short"
    rows: Callable[[Tables, Entry], Sequence[Any]] | None = None  # of its table in the report
    template: str = "table.html.j2"  # of that table; the default takes rows that are dictionaries
    labels: Mapping[str, str] = field(default_factory=dict)  # names of the series for readers
    paper: Mapping[str, Sequence[Stated]] = field(default_factory=dict)  # by series
