"""Write the tutorial's outputs and figures anew: `.venv/bin/python docs/tutorial.py` (some minutes on two cores).

Its study is kept in .docs-studies, so that an interrupted run resumes and a second one is quick.
"""

import os
import sys
from contextlib import chdir
from pathlib import Path

from blocks import with_outputs

HERE = Path(__file__).parent
PAGE = HERE / "tutorial.md"
STUDIES = HERE.parent / ".docs-studies"
STUDY = STUDIES / "demo-study"
FIGURES = ("patterns", "mutation", "agreement", "zero_agreement", "cases", "residual_agreement", "effect_groups")


def main() -> None:
    """Outputs first, which make the study, then its figures."""
    import ffscope

    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # names the program
    STUDIES.mkdir(exist_ok=True)
    with chdir(STUDIES):
        text = with_outputs(PAGE, "bundled")
    PAGE.write_text(text, encoding="utf-8")
    (HERE / "tutorial").mkdir(exist_ok=True)
    for name in FIGURES:
        ffscope.open(STUDY).figure(name).save(HERE / "tutorial" / f"{name}.svg")


if __name__ == "__main__":
    main()
