"""Draw the figures of docs/findings.md anew: `.venv/bin/python docs/pictures.py [STUDY]`.

With a STUDY, its summary is copied to docs/wiki16 first; the figures are drawn from there.
"""

import json
import shutil
import sys
from pathlib import Path

from ffscope.report.drawn_figure import draw_all

HERE = Path(__file__).parent


def draw_figures(folder: Path) -> None:
    """Every figure of a summary."""
    for figure in draw_all(json.loads((folder / "summary.json").read_text())):
        figure.save(folder / f"{figure.name}.svg")


def main(study: Path | None = None) -> None:
    """All of them; those of a study, if one is given."""
    folder = HERE / "wiki16"
    if study is not None:
        folder.mkdir(exist_ok=True)
        shutil.copy(study / "summary.json", folder / "summary.json")
    draw_figures(folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
