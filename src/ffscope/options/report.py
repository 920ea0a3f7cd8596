"""How the report is drawn."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class ReportOptions(Checked):
    """The annotators in figure 2, and whether the figures' files have titles."""

    annotators: Annotated[
        str | None,
        Help("Annotators whose patterns figure 2 shows, such as machine,ada; by default all of them, side by side."),
    ] = None
    bare: Annotated[
        bool,
        Help("Omit the titles from the figures in figures/, for papers that have captions.", flag="--bare"),
    ] = False
