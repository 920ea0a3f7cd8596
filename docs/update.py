"""Write every generated part of the documentation anew: `make docs-update`, or `.venv/bin/python docs/update.py [PART …]`.

Parts: files (the contract's table), readme (its results), scaling (its simulated table), notebook (its addresses), tutorial
(outputs and figures; makes a study: some minutes), pictures (figures of docs/findings.md), screenshots (of the explorer; needs
Chromium). All by default.
"""

import sys

import notebook_links
import pictures
import readme
import scaling_table
import screenshots
import study_files
import tutorial

PARTS = {
    "files": study_files.main,
    "readme": readme.main,
    "scaling": scaling_table.main,
    "notebook": notebook_links.main,
    "tutorial": tutorial.main,
    "pictures": pictures.main,
    "screenshots": screenshots.main,
}


def main() -> None:
    """The parts that are named, or all."""
    names = sys.argv[1:] or list(PARTS)
    unknown = set(names) - set(PARTS)
    if unknown:
        sys.exit(f"There is no part {unknown.pop()!r}. Choose from: {', '.join(PARTS)}.")
    for name in names:
        print(f"{name} …", flush=True)
        PARTS[name]()


if __name__ == "__main__":
    main()
