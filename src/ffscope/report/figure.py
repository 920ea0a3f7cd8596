"""A figure or table of the report as one row: where its numbers come from, how it is drawn, what it says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ffscope.queries.tables import Tables
from ffscope.report.series import Source

Entry = dict[str, Any]  # of the summary: what one figure shows, in numbers
# What the paper states of a series: first layer, last layer, lowest and highest value. Layers count from 1, as in the paper.
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

    `series` gives its numbers from a study's tables, or None where they hold nothing for it. All else is made from these
    numbers alone. `stage` is the stage whose table must have rows before `series` is asked; None: it looks for itself.
    """

    name: str
    title: str
    series: Callable[[Source], Entry | None]
    sentence: Callable[[Entry], str]  # what it shows, and how that compares with the paper
    stage: str | None = None
    number: int | None = None  # in the paper: of a figure where there is a chart, else of a table
    chart: Callable[[Entry], Any] | None = None  # an altair chart; whoever draws imports altair, not this row's module
    how_to_read: str = ""  # one line on axes, bars, bands and boxes; a figure with a chart must have it
    findings: Callable[[Entry], Sequence[Finding]] | None = None  # its rows of "In short"
    rows: Callable[[Tables, Entry], Sequence[Any]] | None = None  # what fills its section of the report
    template: str = "table.html.j2"  # of that section; this one takes rows that are dictionaries
    labels: Mapping[str, str] = field(default_factory=dict)  # what series are called where people read them
    paper: Mapping[str, Sequence[Stated]] = field(default_factory=dict)  # by series
