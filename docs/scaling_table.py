"""Write the simulated table of docs/scaling.md anew, from the rates in bench/h200.json."""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scaling.md"
BEGIN, END = "<!-- simulation -->\n", "<!-- end of simulation -->\n"


def updated(text: str) -> str:
    """The page with the table that the simulation prints."""
    sys.path.append(str(ROOT / "bench"))
    from simulate_cluster import table

    before, after = text.split(BEGIN, maxsplit=1)[0], text.split(END)[1]
    return f"{before}{BEGIN}{table()}\n{END}{after}"


def main() -> None:
    """Write it."""
    PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
