"""Which figures and tables the report has."""

from collections.abc import Iterable
from importlib import import_module

from ffscope.report.figure import Figure

# In the order of summary.json. Named by string, so that a row's module is imported when someone asks for it.
FIGURES = (
    "ffscope.report.mutation:FIGURE",
    "ffscope.report.agreement:FIGURE",
    "ffscope.report.next_rank:FIGURE",
    "ffscope.report.agreement_by_probability:FIGURE",
    "ffscope.report.predictive_values:FIGURE",
    "ffscope.report.active:FIGURE",
    "ffscope.report.zero_agreement:FIGURE",
    "ffscope.report.residual_agreement:FIGURE",
    "ffscope.report.residual_probability:FIGURE",
    "ffscope.report.cases:FIGURE",
    "ffscope.report.last_layer:FIGURE",
    "ffscope.report.pattern_examples:FIGURE",
    "ffscope.report.patterns:FIGURE",
)


def figures() -> dict[str, Figure]:
    """Every figure and table by its name, in the order of the summary."""
    rows = [getattr(import_module(module), name) for module, _, name in (path.partition(":") for path in FIGURES)]
    return {row.name: row for row in rows}


def charted() -> dict[str, Figure]:
    """Those that are drawn, in the paper's order; those that the paper does not have come last."""
    return _numbered(row for row in figures().values() if row.chart is not None)


def sections() -> dict[str, Figure]:
    """Those that fill a section of the report with rows, in the same order."""
    return _numbered(row for row in figures().values() if row.rows is not None)


def _numbered(rows: Iterable[Figure]) -> dict[str, Figure]:
    return {row.name: row for row in sorted(rows, key=lambda row: (row.number is None, row.number or 0))}
