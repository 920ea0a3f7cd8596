"""The output of `ffscope annotate`. Names are untrusted: they may come from another person's study."""

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from ffscope.cli.output import program_name
from ffscope.cli.progress_output import out
from ffscope.tokens import visible

if TYPE_CHECKING:
    from ffscope.annotating.annotate import AnnotateResult
    from ffscope.annotating.annotator_agreement import AgreementSummary
    from ffscope.annotating.sheets import Sheet

_COLUMNS = ("annotator", "compared with", "question", "same answer", "kappa", "prefixes", "memories")


def print_step(step: "AnnotateResult") -> None:
    """The result of a step, and what to do next."""
    if step.sheet is not None:
        _print_sheet(step.sheet)
    if step.read is not None:
        read = step.read
        out.print(
            f"{read.memories:,} memories read, with {read.patterns:,} patterns; {read.new:,} memories are new or changed."
        )
    if step.concord is not None:
        _print_agreement(step.concord)


def _print_sheet(sheet: "Sheet") -> None:
    out.print(f"{sheet.memories:,} memories to annotate, as a spreadsheet or as JSON, with instructions in the file:")
    for file in (sheet.csv, sheet.json):
        out.print(f"  {file}", markup=False, soft_wrap=True)
    out.print("Fill in one of the two and read it back, as often as you like:")
    out.print(f"{program_name()} {sheet.then}", markup=False, soft_wrap=True)


def _print_agreement(concord: "AgreementSummary") -> None:
    if not concord.people:
        out.print("No annotations yet. Write a sheet to fill in with --annotator NAME.")
    for name, memories in concord.people.items():
        out.print(Text.assemble((visible(name), "bold"), f" annotated {memories:,} memories"), soft_wrap=True)
    if not concord.pairs:
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for i, name in enumerate(_COLUMNS):
        table.add_column(name, justify="left" if i < 3 else "right")
    for pair in concord.pairs:
        table.add_row(
            Text(visible(pair.first)),
            Text(visible(pair.second)),
            pair.question,
            "–" if pair.agreement is None else f"{pair.agreement:.0%}",
            _number(pair.kappa),
            f"{pair.prefixes:,}",
            f"{pair.memories:,}",
        )
    out.print(table)
    for alpha in concord.alphas:
        result = f"all annotators on {alpha.question}: Krippendorff's alpha {_number(alpha.alpha)}"
        out.print(f"{result} over {alpha.prefixes:,} prefixes of {alpha.memories:,} memories", soft_wrap=True)


def _number(value: float | None) -> str:
    """The number, or – if it is undefined: there is nothing to compare, or all answers are the same."""
    return "–" if value is None else f"{value:.2f}"
