"""Draw the pictures of the README and of docs/findings.md anew: `.venv/bin/python docs/pictures.py [STUDY]`.

With a STUDY, its summary is kept in docs/wiki16 first; the figures are drawn from there.
"""

import json
import re
import shutil
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console

from ffscope import load
from ffscope.analysis.trace import trace_prediction
from ffscope.cli import output as terminal
from ffscope.report.drawn_figure import draw_all

HERE = Path(__file__).parent


def draw_trace() -> None:
    """The story of one prompt, as the terminal shows it."""
    text = "The capital of France is"
    story = trace_prediction(load("smollm2-135m"), text, layers=[0, 8, 16, *range(24, 30)], memories=2)
    terminal.out = Console(record=True, width=96, highlight=False, force_terminal=True, file=StringIO())
    terminal.print_trace(story)
    title = f'ffscope trace smollm2-135m "{text}" --layers 0,8,16,24-29 --memories 2'
    picture = terminal.out.export_svg(title=title)
    # The fonts it would fetch: a picture must not ask the network.
    picture = re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL)
    (HERE / "trace.svg").write_text(picture)


def draw_figures(folder: Path) -> None:
    """Every figure of a summary."""
    for figure in draw_all(json.loads((folder / "summary.json").read_text())):
        figure.save(folder / f"{figure.name}.svg")


def main() -> None:
    """All of them."""
    folder = HERE / "wiki16"
    if sys.argv[1:]:
        folder.mkdir(exist_ok=True)
        shutil.copy(Path(sys.argv[1]) / "summary.json", folder / "summary.json")
    draw_figures(folder)
    draw_trace()


if __name__ == "__main__":
    main()
