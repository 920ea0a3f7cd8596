"""What the command line shows: tables, stories, progress. Text from a corpus or a vocabulary is untrusted here."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from rich.table import Table
from rich.text import Text

from ffscope.cli.progress_output import out, span
from ffscope.stages.registry import measures, stages
from ffscope.tokens import visible

if TYPE_CHECKING:
    from ffscope.analysis.trace import Contribution, Prediction, PredictionTrace
    from ffscope.models.check import Finding as CheckedIdentity
    from ffscope.models.memory_model import MemoryModel
    from ffscope.queries.memory import MemoryPage, Value
    from ffscope.queries.patterns import Found
    from ffscope.queries.prefixes import Trigger
    from ffscope.queries.search import Matches
    from ffscope.report.figure import Finding
    from ffscope.stages.stage import Measure, Stage
    from ffscope.study.folder import Study
    from ffscope.web.export import Exported

AGREEMENT = "agreement (top token of the value = next token of the top trigger)"
_SHADES = ("", "on grey19", "on grey30", "on dark_orange3", "on red3")  # the higher a coefficient, the further on
_TABLE_WIDTH = 110  # columns of a terminal in which the table of findings is readable


def print_check(model: "MemoryModel", identities: "list[CheckedIdentity]") -> None:
    """Every identity of a model, with its largest error."""
    how = "discovered; not in the table" if model.discovered else "in the table"
    out.print(f"{model}; layout {how}", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("identity", "left"), ("layers", "left"), ("largest error", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in identities:
        first, last = row.layers[0], row.layers[-1]
        verdict = Text("holds", style="green") if row.holds else Text("FAILS", style="bold red")
        table.add_row(row.identity, f"{first}" if first == last else f"{first}–{last}", f"{row.error:.1e}", verdict)
    out.print(table)


def print_trace(story: "PredictionTrace") -> None:
    """The prediction at one position, layer by layer."""
    shown = Text(" ").join(
        Text(token, style="bold reverse" if i == story.position else "") for i, token in enumerate(story.tokens)
    )
    out.print(shown, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("layer", "before", "memories and what they promote", "after", "case"):
        table.add_column(name, justify="right" if name == "layer" else "left", no_wrap=True)
    wide = 7 + (out.width - 80) // 4  # a token in a column
    room = out.width - 32 - 2 * wide  # what the other columns leave
    for step in story.steps:
        table.add_row(
            str(step.layer),
            _prediction(step.before, wide),
            Text("\n").join(_cut(_contribution(memory), room) for memory in step.memories),
            _prediction(step.after, wide),
            step.case,
        )
    out.print(table)
    best = Text("  ").join(_prediction(prediction, 20) for prediction in story.prediction)
    out.print(Text.assemble(("the model predicts: ", "bold"), best))


def _prediction(prediction: "Prediction", width: int) -> Text:
    return Text.assemble(_cut(Text(prediction.token, style="cyan"), width), f" {prediction.probability:.0%}")


def _contribution(memory: "Contribution") -> Text:
    return Text.assemble((f"{memory.memory:<9}", "magenta"), f"{memory.coefficient:>7.2f} ", " ".join(memory.promotes))


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def print_study(study: "Study") -> None:
    """What a search left behind, and what to do with it."""
    held_out, stage = study.manifest["corpus"]["held_out"], study.manifest["stages"]["triggers"]
    memories, first = study.searched()
    lines = (
        f"{stage['prefixes']:,} prefixes of {stage['sentences']:,} sentences searched for {memories:,} memories in "
        f"{span(stage['seconds'])}, {stage['tokens_per_second']:,} a second; {held_out['sentences']:,} sentences held out.",
        f"In {study.folder}: triggers.parquet, memories.parquet, sentences.parquet. Look at a memory:",
        f"{own_name()} show {shlex.quote(str(study.folder))} {first}",
    )
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def print_stage(study: "Study", stage: str) -> None:
    """What one stage left behind, and what to do next."""
    table, seconds = stages()[stage].table, study.manifest["stages"][stage]["seconds"]
    assert table is not None
    file = study.path(table.file)
    out.print(f"{file}, made in {span(seconds)}. Draw what the study shows:", markup=False, soft_wrap=True)
    out.print(f"{own_name()} report {shlex.quote(str(study.folder))}", markup=False, soft_wrap=True)


def print_finished(study: "Study") -> None:
    """What a study shows in a few numbers, and where the rest is."""
    print_summary(_findings(study))
    for stage, done in study.manifest["stages"].items():
        if not done["done"]:
            out.print(
                Text.assemble((f"left out: {stage}. ", "yellow"), visible(done["why"], longest=None)), soft_wrap=True
            )
    _, first = study.searched()
    lines = (
        f"report   {study.path('report.html')}  (open it in a browser)",
        f"figures  {study.path('figures')}{os.sep}",
        f"numbers  {study.path('summary.json')}, and a .parquet file for every stage",
        f"memories {own_name()} show {shlex.quote(str(study.folder))} {first}",
        f"explorer {own_name()} serve {shlex.quote(str(study.folder))}",
    )
    for line in lines if study.path("report.html").is_file() else lines[-2:]:
        out.print(line, markup=False, soft_wrap=True)


def print_summary(findings: list["Finding"]) -> None:
    """The report's "In short": a table on a wide terminal, elsewhere one line per finding."""
    if not out.is_terminal or out.width < _TABLE_WIDTH:
        for row in findings:
            line = f"{row.finding}: {row.model} (paper: {row.paper}) → {row.reading}"
            out.print(Text.assemble(("• ", "cyan"), line), soft_wrap=not out.is_terminal)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for head, share in (("finding", 4), ("this model", 3), ("the paper", 3), ("reading", 4)):
        table.add_column(head, ratio=share)
    for row in findings:
        table.add_row(*(Text(cell) for cell in (row.finding, row.model, row.paper, row.reading)))
    if findings:
        out.print(table)


def _findings(study: "Study") -> list["Finding"]:
    """The report's findings; none where there is no report, or where only the packages of the model side are installed."""
    if not study.path("summary.json").is_file():
        return []
    with suppress(ModuleNotFoundError):
        from ffscope.report.summary import findings

        return findings(json.loads(study.path("summary.json").read_text(encoding="utf-8")))
    return []


def own_name() -> str:
    """How this program is called from where its user is."""
    return "ffscope" if shutil.which("ffscope") else sys.argv[0]


def print_memory(page: "MemoryPage", count: int) -> None:
    """One memory's triggers, the trigger token shaded by its coefficient, the token that follows it in grey."""
    share = page.fired / page.seen if page.seen else 0.0
    head = (
        f" of {visible(page.model, longest=None)} ({page.dtype}): fires on {share:.1%} of {page.seen:,} prefixes, "
        f"mean {page.mean:.3g}, highest {page.maximum:.4g}"
    )
    out.print(Text.assemble((page.memory, "bold magenta"), head), soft_wrap=True)
    out.print(Text(visible(page.gist, longest=None), style="bold"), soft_wrap=True)
    if page.value is not None and page.value.promotes:
        _print_value(page.value)
    for found in page.patterns or []:
        _print_pattern(found)
    if not page.triggers:
        out.print("It never fired: no prefix of the corpus gives it a coefficient above 0.")
    for title, triggers in (
        ("", page.triggers),
        ("lowest", page.negative),
        ("a sample of where it fires", page.sample),
    ):
        if triggers:
            if title:
                out.print(Text(f"\n{title}", style="bold"))
            _print_triggers(triggers[:count])


def print_matches(found: "Matches") -> None:
    """The memories that match, each with the first of its triggers that contains the text and the promoted token."""
    shown = f", the first {len(found.rows):,} shown" if len(found.rows) < found.count else ""
    out.print(f"{found.count:,} memories match{shown} ({1000 * found.seconds:.0f} ms)")
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = _promoted_columns() if any(row.promoted for row in found.rows) else _match_columns()
    for name, (justify, _) in columns.items():
        table.add_column(name, justify=justify, no_wrap=True)
    for row in found.rows:
        table.add_row(*(cell(row) for _, cell in columns.values()))
        if row.trigger is not None:
            room = out.width - 24
            before = visible(row.trigger.before, longest=None)[-room:]
            out.print(
                Text.assemble(
                    (f"{row.memory:<10}", "magenta"),
                    f"{row.hits:>3} × ",
                    before,
                    (visible(row.trigger.token, 20), "bold"),
                ),
                soft_wrap=True,
            )
    if found.rows:
        out.print(table)


_Column = tuple[Literal["left", "right"], Callable[[Any], Text | str]]
_MEMORY: dict[str, _Column] = {"memory": ("left", lambda row: Text(row.memory, style="magenta"))}
_PROMOTED: dict[str, _Column] = {
    "token": ("left", lambda row: Text(visible(row.promoted.token, 16), style="cyan")),
    "rank": ("right", lambda row: str(row.promoted.rank)),
    "probability": ("right", lambda row: f"{row.promoted.probability:.2g}"),
}


def _match_columns() -> dict[str, _Column]:
    """A memory and the measures that are for the terminal."""
    return _MEMORY | dict(_measure_column(measure, 48) for _, measure in _terminal_measures())


def _promoted_columns() -> dict[str, _Column]:
    """A memory and the token that was asked for, which takes the place of what else is known of the value."""
    others = [measure for stage, measure in _terminal_measures() if stage.name not in ("values", "agreement")]
    return _MEMORY | _PROMOTED | dict(_measure_column(measure, 24) for measure in others)


def _terminal_measures() -> "Iterator[tuple[Stage, Measure]]":
    return (pair for pair in measures().values() if "terminal" in pair[1].shown)


def _measure_column(measure: "Measure", longest: int) -> tuple[str, _Column]:
    """The head and the cells of a measure's column; a text has at most so many letters."""
    head = f"{measure.name} token" if measure.kind == "token" else measure.name
    number = measure.kind in ("real", "share", "count")
    return head, ("right" if number else "left", lambda row: _cell(measure, row.measures.get(measure.name), longest))


def _cell(measure: "Measure", value: Any, longest: int) -> Text | str:
    if measure.kind == "token":
        return Text(visible(value or "–", 16), style="cyan")
    if measure.kind in ("text", "choice"):
        return Text(visible(value or "–", longest))
    if value is None:
        return "–"
    if measure.kind == "answer":
        return "yes" if value else "no"
    digits = 1 if measure.digits is None else measure.digits
    return {"share": f"{value:.{digits}%}", "count": f"{value:,}", "real": f"{value:.2g}"}[measure.kind]


def print_served(link: str, why_no_model: str | None, *, browse: bool) -> None:
    """Where the explorer is, as soon as it answers, and what it cannot do."""
    out.print(Text.assemble("The explorer is ready at ", (link, "bold"), "  (Ctrl-C stops it)"), soft_wrap=True)
    if why_no_model is not None:
        print_line(f"Prompts cannot be asked: there is no model. {why_no_model}")
    if browse:
        import webbrowser

        webbrowser.open(link)


def print_line(sentence: str) -> None:
    """A sentence about how things stand, as it is."""
    out.print(sentence, markup=False, soft_wrap=True)


def print_exported(made: "Exported") -> None:
    """What an export wrote, and where to begin."""
    out.print(
        f"{made.pages:,} pages, {made.bytes / 2**20:.1f} MiB. Open this in a browser, or put the folder on any web host:"
    )
    out.print(f"  {made.first}", markup=False, soft_wrap=True)


def _print_value(value: "Value") -> None:
    promotes = " ".join(visible(token, 20) for token, _ in value.promotes[:10])
    suppresses = " ".join(visible(token, 20) for token in value.suppresses[:10])
    for title, said in (("promotes", promotes), ("suppresses", suppresses)):
        out.print(_cut(Text.assemble((f"{title:<11}", "bold"), (said, "cyan")), out.width))
    if value.precision is not None:
        first = visible(value.promotes[0][0], 20)
        out.print(Text.assemble((first, "cyan"), f" follows {value.precision:.0%} of its triggers"))
    if value.agrees is not None:
        rank = "has no rank" if value.next_rank is None else f"has rank {value.next_rank:,} of {value.vocabulary:,}"
        out.print(f"the next token of its top trigger {rank} in the value")
        out.print(f"{AGREEMENT}: {'yes' if value.agrees else 'no'}")


def _print_pattern(found: "Found") -> None:
    who = "" if found.annotator == "machine" else f" – {visible(found.annotator)}"
    chance = "" if found.p_value is None else f", p {found.p_value:.0e}"
    said = f"{visible(found.description, longest=None)} ({len(found.covers)} prefixes{chance}){who}"
    out.print(Text.assemble((f"{found.kind:<11}", "bold"), said), soft_wrap=True)


def _print_triggers(triggers: "list[Trigger]") -> None:
    highest = max(abs(trigger.coefficient) for trigger in triggers)
    room = out.width - 28
    for trigger in triggers:
        token = visible(trigger.token, 24)
        before = visible(trigger.before, longest=None)
        kept = max(10, room - len(token))
        shade = (
            _SHADES[min(len(_SHADES) - 1, int(abs(trigger.coefficient) / highest * len(_SHADES)))] if highest else ""
        )
        line = Text.assemble(
            (f"{trigger.rank:>3} ", "dim"),
            f"{trigger.coefficient:>8.3f}  ",
            before if len(before) <= kept else f"…{before[-kept + 1 :]}",
            (token, f"bold {shade}"),
            (f" {visible(trigger.next_token, 12)}", "bright_black"),
        )
        out.print(line, no_wrap=True, overflow="ellipsis")
