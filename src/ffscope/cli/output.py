"""Output of the command line. Text from a corpus or a vocabulary is untrusted."""

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from ffscope.cli.progress_output import duration, out
from ffscope.stages.registry import measures, stages
from ffscope.tokens import visible

if TYPE_CHECKING:
    from ffscope.analysis.trace import Contribution, Prediction, PredictionTrace
    from ffscope.models.check import Finding as CheckedIdentity
    from ffscope.models.memory_model import MemoryModel
    from ffscope.queries.memory import MemoryPage, Value
    from ffscope.queries.patterns import AnnotatedPattern
    from ffscope.queries.prefixes import Trigger
    from ffscope.queries.search import Matches
    from ffscope.report.figure import Finding
    from ffscope.stages.stage import Measure, Stage
    from ffscope.study.folder import Study
    from ffscope.web.export import Exported

AGREEMENT = "agreement (top token of the value = next token of the top trigger)"
_SHADES = ("", "on grey19", "on grey30", "on dark_orange3", "on red3")  # by coefficient, lowest first
_TABLE_WIDTH, _TABLE_WIDEST = 110, 160  # least and greatest width of the table of findings, in characters


def print_check(model: "MemoryModel", identities: "list[CheckedIdentity]") -> None:
    """Every identity of a model, with its largest error."""
    layout = "discovered; not in the table" if model.discovered else "in the table"
    out.print(f"{model}; layout {layout}", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("identity", "left"), ("layers", "left"), ("largest error", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for row in identities:
        first, last = row.layers[0], row.layers[-1]
        verdict = Text("holds", style="green") if row.holds else Text("FAILS", style="bold red")
        table.add_row(row.identity, f"{first}" if first == last else f"{first}–{last}", f"{row.error:.1e}", verdict)
    out.print(table)


def print_trace(trace: "PredictionTrace") -> None:
    """The prediction at one position, layer by layer."""
    prompt = Text(" ").join(
        Text(token, style="bold reverse" if i == trace.position else "") for i, token in enumerate(trace.tokens)
    )
    out.print(prompt, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("layer", "before", "memories and what they promote", "after", "case"):
        table.add_column(name, justify="right" if name == "layer" else "left", no_wrap=True)
    wide = 7 + (out.width - 80) // 4  # width of a token's column
    room = out.width - 32 - 2 * wide  # width that the other columns leave
    for step in trace.steps:
        table.add_row(
            str(step.layer),
            _prediction(step.before, wide),
            Text("\n").join(_cut(_contribution(memory), room) for memory in step.memories),
            _prediction(step.after, wide),
            step.case,
        )
    out.print(table)
    best = Text("  ").join(_prediction(prediction, 20) for prediction in trace.prediction)
    out.print(Text.assemble(("the model predicts: ", "bold"), best))


def _prediction(prediction: "Prediction", width: int) -> Text:
    return Text.assemble(_cut(Text(prediction.token, style="cyan"), width), f" {prediction.probability:.0%}")


def _contribution(memory: "Contribution") -> Text:
    return Text.assemble((f"{memory.memory:<9}", "magenta"), f"{memory.coefficient:>7.2f} ", " ".join(memory.promotes))


def _cut(text: Text, width: int) -> Text:
    text.truncate(width, overflow="ellipsis")
    return text


def print_study(study: "Study") -> None:
    """The result of a search, and what to do next."""
    held_out, stage = study.manifest["corpus"]["held_out"], study.manifest["stages"]["triggers"]
    memories, first = study.searched()
    lines = (
        f"{stage['prefixes']:,} prefixes of {stage['sentences']:,} sentences searched for {memories:,} memories in "
        f"{duration(stage['seconds'])} ({stage['tokens_per_second']:,} per second); {held_out['sentences']:,} sentences held out.",
        f"In {study.folder}: triggers.parquet, memories.parquet, sentences.parquet. Show a memory:",
        f"{program_name()} show {shlex.quote(str(study.folder))} {first}",
    )
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def print_stage(study: "Study", stage: str) -> None:
    """The result of one stage, and what to do next."""
    table, seconds = stages()[stage].table, study.manifest["stages"][stage]["seconds"]
    assert table is not None
    file = study.path(table.file)
    out.print(
        f"{file}, written in {duration(seconds)}. Draw the figures and write the report:", markup=False, soft_wrap=True
    )
    out.print(f"{program_name()} report {shlex.quote(str(study.folder))}", markup=False, soft_wrap=True)


def print_finished(study: "Study") -> None:
    """A study's findings, and where its files are."""
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
        f"memories {program_name()} show {shlex.quote(str(study.folder))} {first}",
        f"explorer {program_name()} serve {shlex.quote(str(study.folder))}",
    )
    for line in lines if study.path("report.html").is_file() else lines[-2:]:
        out.print(line, markup=False, soft_wrap=True)


def print_summary(findings: list["Finding"]) -> None:
    """The report's "In short": a table on a wide terminal, a list on a narrow one, else one line per finding."""
    rows = [[visible(cell, longest=None) for cell in vars(finding).values()] for finding in findings]
    lines = [f"{finding}: {model} (paper: {paper}); {reading}" for finding, model, paper, reading in rows]
    if not out.is_terminal:
        for line in lines:
            out.print(f"• {line}", markup=False, soft_wrap=True)
    elif out.width < _TABLE_WIDTH:
        bullets = Table.grid(padding=(0, 1))
        for line in lines:
            bullets.add_row(Text("•", style="cyan"), Text(line))
        out.print(bullets)
    elif rows:
        width = min(out.width, _TABLE_WIDEST)
        table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold", expand=True, width=width)
        for head, share, style in (
            ("finding", 5, ""),
            ("this model", 4, "cyan"),
            ("the paper", 4, ""),
            ("reading", 5, ""),
        ):
            table.add_column(head, ratio=share, style=style)
        for row in rows:
            table.add_row(*map(Text, row))
        out.print(table)


def _findings(study: "Study") -> list["Finding"]:
    """The report's findings; none if there is no report, or if only the packages that run the model are installed."""
    if not study.path("summary.json").is_file():
        return []
    with suppress(ModuleNotFoundError):
        from ffscope.report.summary import findings

        return findings(json.loads(study.path("summary.json").read_text(encoding="utf-8")))
    return []


def program_name() -> str:
    """The command to call this program: ffscope if it is on the path, else as it was started."""
    if shutil.which("ffscope"):
        return "ffscope"
    return "python -m ffscope" if Path(sys.argv[0]).name == "__main__.py" else sys.argv[0]


def print_memory(page: "MemoryPage", count: int) -> None:
    """One memory: its value, its patterns, and its triggers with the last token shaded by the coefficient."""
    share = page.fired / page.seen if page.seen else 0.0
    head = (
        f" of {visible(page.model, longest=None)} ({page.dtype}): fires on {share:.1%} of {page.seen:,} prefixes, "
        f"mean {page.mean:.3g}, highest {page.maximum:.4g}"
    )
    out.print(Text.assemble((page.memory, "bold magenta"), head), soft_wrap=True)
    out.print(Text(visible(page.gist, longest=None), style="bold"), soft_wrap=True)
    if page.value is not None and page.value.promotes:
        _print_value(page.value)
    for pattern in page.patterns or []:
        _print_pattern(pattern)
    if not page.triggers:
        out.print("It never fired: no prefix of the corpus has a coefficient above 0.")
    for title, triggers in (
        ("", page.triggers),
        ("lowest", page.negative),
        ("a sample of where it fires", page.sample),
    ):
        if triggers:
            if title:
                out.print(Text(f"\n{title}", style="bold"))
            _print_triggers(triggers[:count])


def print_matches(matches: "Matches", queried: Iterable[str] = ()) -> None:
    """The matches: first triggers that contain the text, promoted tokens, and the measures that are queried and usually shown."""
    cut = f"; the first {len(matches.rows):,}:" if len(matches.rows) < matches.count else ""
    out.print(f"{matches.count:,} memories match ({1000 * matches.seconds:.0f} ms){cut}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = _MEMORY | dict(_measure_column(measures()[name][1], 24) for name in queried)
    columns |= _promoted_columns() if any(row.promoted for row in matches.rows) else _match_columns()
    for name, (justify, _) in columns.items():
        # Where the terminal is narrow, texts are cut, and never a number or a name.
        table.add_column(name, justify=justify, no_wrap=justify == "right" or name in _MEMORY)
    for row in matches.rows:
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
    if matches.rows:
        out.print(table)


_Column = tuple[Literal["left", "right"], Callable[[Any], Text | str]]
_MEMORY: dict[str, _Column] = {"memory": ("left", lambda row: Text(row.memory, style="magenta"))}
_PROMOTED: dict[str, _Column] = {
    "token": ("left", lambda row: Text(visible(row.promoted.token, 16), style="cyan")),
    "rank": ("right", lambda row: str(row.promoted.rank)),
    "probability": ("right", lambda row: f"{row.promoted.probability:.2g}"),
}


def _match_columns() -> dict[str, _Column]:
    """The measures shown in the terminal."""
    return dict(_measure_column(measure, 48) for _, measure in _terminal_measures())


def _promoted_columns() -> dict[str, _Column]:
    """The promoted token searched for, in place of the value's other measures, and the rest."""
    others = [measure for stage, measure in _terminal_measures() if stage.name not in ("values", "agreement")]
    return _PROMOTED | dict(_measure_column(measure, 24) for measure in others)


def _terminal_measures() -> "Iterator[tuple[Stage, Measure]]":
    return (pair for pair in measures().values() if "terminal" in pair[1].shown)


def _measure_column(measure: "Measure", longest: int) -> tuple[str, _Column]:
    """The header and the cells of a measure's column; texts are cut to `longest` characters."""
    head = f"{measure.name} token" if measure.kind == "token" else measure.name
    number = measure.kind in ("real", "share", "count")
    return head, ("right" if number else "left", lambda row: _cell(measure, row.measures.get(measure.name), longest))


def _cell(measure: "Measure", value: Any, longest: int) -> Text | str:
    if measure.kind in ("token", "text", "choice"):
        token = measure.kind == "token"
        text = visible(value or "–", 16 if token else longest)
        return Text(text, style="cyan" if token else "", no_wrap=True, overflow="ellipsis")
    if value is None:
        return "–"
    if measure.kind == "answer":
        return "yes" if value else "no"
    digits = 1 if measure.digits is None else measure.digits
    return {"share": f"{value:.{digits}%}", "count": f"{value:,}", "real": f"{value:.2g}"}[measure.kind]


def print_served(link: str, why_no_model: str | None, *, browse: bool) -> None:
    """The explorer's address and, if prompts are unavailable, the reason."""
    out.print(Text.assemble("The explorer is ready at ", (link, "bold"), "  (Ctrl-C stops it)"), soft_wrap=True)
    if why_no_model is not None:
        print_line(f"Prompts are unavailable: no model is loaded. {why_no_model}")
    if browse:
        import webbrowser

        webbrowser.open(link)


def print_line(sentence: str) -> None:
    """A sentence, without markup."""
    out.print(sentence, markup=False, soft_wrap=True)


def print_exported(exported: "Exported") -> None:
    """What an export wrote, and its first page."""
    out.print(
        f"{exported.pages:,} pages, {exported.bytes / 2**20:.1f} MiB. Open this in a browser, or copy the folder to any web host:"
    )
    out.print(f"  {exported.first}", markup=False, soft_wrap=True)


def _print_value(value: "Value") -> None:
    promotes = " ".join(visible(token, 20) for token, _ in value.promotes[:10])
    suppresses = " ".join(visible(token, 20) for token in value.suppresses[:10])
    for title, tokens in (("promotes", promotes), ("suppresses", suppresses)):
        out.print(_cut(Text.assemble((f"{title:<11}", "bold"), (tokens, "cyan")), out.width))
    if value.precision is not None:
        first = visible(value.promotes[0][0], 20)
        out.print(Text.assemble((first, "cyan"), f" follows {value.precision:.0%} of its triggers"))
    if value.agrees is not None:
        rank = "has no rank" if value.next_rank is None else f"has rank {value.next_rank:,} of {value.vocabulary:,}"
        out.print(f"the next token of its top trigger {rank} in the value")
        out.print(f"{AGREEMENT}: {'yes' if value.agrees else 'no'}")


def _print_pattern(pattern: "AnnotatedPattern") -> None:
    annotator = "" if pattern.annotator == "machine" else f" – {visible(pattern.annotator)}"
    chance = "" if pattern.p_value is None else f", p {pattern.p_value:.0e}"
    text = f"{visible(pattern.description, longest=None)} ({len(pattern.covers)} prefixes{chance}){annotator}"
    out.print(Text.assemble((f"{pattern.kind:<11}", "bold"), text), soft_wrap=True)


def _print_triggers(triggers: "list[Trigger]") -> None:
    highest = max(abs(trigger.coefficient) for trigger in triggers)
    room = out.width - 28
    for trigger in triggers:
        token = visible(trigger.token, 24)
        before = visible(trigger.before, longest=None)
        before_width = max(10, room - len(token))
        shade = (
            _SHADES[min(len(_SHADES) - 1, int(abs(trigger.coefficient) / highest * len(_SHADES)))] if highest else ""
        )
        line = Text.assemble(
            (f"{trigger.rank:>3} ", "dim"),
            f"{trigger.coefficient:>8.3f}  ",
            before if len(before) <= before_width else f"…{before[-before_width + 1 :]}",
            (token, f"bold {shade}"),
            (f" {visible(trigger.next_token, 12)}", "bright_black"),
        )
        out.print(line, no_wrap=True, overflow="ellipsis")
