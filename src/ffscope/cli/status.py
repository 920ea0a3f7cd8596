"""The command that shows how far a study is."""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.table import Table

from ffscope.cli.parameters import Json, StudyFolder
from ffscope.cli.progress_output import duration, message, out
from ffscope.cli.signature import command
from ffscope.stages.registry import stages
from ffscope.tokens import visible

if TYPE_CHECKING:
    from ffscope.study.status import Status


@command()
def status(study: StudyFolder, json_: Json = False) -> None:
    """Show how far a study is: what runs now, what is done, why it stopped. Reads only, and does not disturb a running study."""
    from ffscope.study.status import read_status

    current = read_status(study)
    if json_:
        out.print_json(json.dumps(asdict(current)))
    else:
        print_status(current)


def print_status(status: "Status") -> None:
    """Print what runs, and the stages."""
    out.print(_headline(status), markup=False, soft_wrap=True)
    for progress in status.progress:
        out.print(f"  {progress.stage}: {message(progress)}", markup=False, soft_wrap=True)
    done = status.manifest.get("stages", {})
    table = Table(box=None, pad_edge=False)
    for head in ("stage", "", "time"):
        table.add_column(head)
    for name, row in stages().items():
        entry = done.get(name)
        if entry is None and row.command != "own" and name not in ("sentences", "triggers"):
            continue
        state = "done" if entry and entry["done"] else f"skipped: {entry['why']}" if entry and "why" in entry else "–"
        seconds = duration(entry["seconds"]) if entry and entry.get("seconds") is not None else ""
        table.add_row(name, visible(state, longest=None), seconds)
    out.print(table)


def _headline(status: "Status") -> str:
    where = "" if status.process is None else f" (process {status.process} on {visible(str(status.host))})"
    if status.running:
        age = "" if status.seconds is None else f", {duration(status.seconds)} ago at"
        return f"Running{where}{age}:" if status.progress else "Running."
    if status.progress:
        reason = f": {visible(status.ended, longest=None)}" if status.ended else ": the process ended"
        return f"Not running. Stopped{where}{reason}. Run the same command to resume. Last seen at:"
    return "Not running."
