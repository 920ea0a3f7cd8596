"""Draw the figures of the studies in docs anew: `.venv/bin/python docs/pictures.py [STUDY]`.

Each is drawn from its summary.json: that of docs/wiki16 (docs/findings.md) and that of docs/smollm2 (the bundled model in
docs/lenses.md and docs/prune.md). With a STUDY, its summary is copied to docs/wiki16 first.
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
    if study is not None:
        shutil.copy(study / "summary.json", HERE / "wiki16" / "summary.json")
    for summary in sorted(HERE.glob("*/summary.json")):
        draw_figures(summary.parent)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
