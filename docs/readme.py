"""Write the README's table of results anew, from docs/wiki16/summary.json: `.venv/bin/python docs/readme.py`."""

import json
from pathlib import Path

README = Path(__file__).parents[1] / "README.md"
SUMMARY = Path(__file__).with_name("wiki16") / "summary.json"
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def updated(text: str) -> str:
    """The README with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def table() -> str:
    """A row for every finding that the paper has too: the paper beside the model of docs/findings.md."""
    from ffscope.report.summary import findings

    summary = json.loads(SUMMARY.read_text(encoding="utf-8"))
    rows = findings({name: entry for name, entry in summary.items() if "figure" in entry})
    lines = [
        f"<tr><td>{row.finding}</td>\n    <td>{row.paper}</td><td>{row.model}</td></tr>" for row in rows
    ]  # HTML, since a row of a Markdown table cannot be broken
    return "\n".join(["<table>", "<tr><th>finding</th><th>paper</th><th>here</th></tr>", *lines, "</table>"])


def main() -> None:
    """Write it."""
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
