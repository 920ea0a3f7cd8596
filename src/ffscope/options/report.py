"""How a report is drawn."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class ReportOptions(Checked):
    """Whose patterns figure 2 shows, and whether the figures' files have titles."""

    annotators: Annotated[
        str | None,
        Help("Whose patterns figure 2 shows, such as machine,ada; by default everyone's, side by side."),
    ] = None
    bare: Annotated[
        bool,
        Help("Keep titles out of the figures in figures/, for papers with captions of their own.", flag="--bare"),
    ] = False
