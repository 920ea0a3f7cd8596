"""Write the notebook's link to Colab and its source for pip: `.venv/bin/python docs/notebook_links.py`.

REPOSITORY is the only place that names where the project is published.
"""

import json
import re
from pathlib import Path

REPOSITORY = "OWNER/ffscope"  # owner and name on GitHub; to be set when the project has a public address
NOTEBOOK = Path(__file__).parents[1] / "examples" / "study.ipynb"
BADGE = "https://colab.research.google.com/assets/colab-badge.svg"


def updated(text: str) -> str:
    """The notebook with the links as they should be."""
    notebook = json.loads(text)
    first, install = notebook["cells"][:2]
    colab = f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/examples/study.ipynb"
    first["source"][0] = f"[![Open in Colab]({BADGE})]({colab})\n"
    source = f'SOURCE = "git+https://github.com/{REPOSITORY}"\n'
    install["source"] = [source if re.match("SOURCE = ", line) else line for line in install["source"]]
    return json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write it."""
    NOTEBOOK.write_text(updated(NOTEBOOK.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
