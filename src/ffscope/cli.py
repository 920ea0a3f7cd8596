"""One command per question: parse, call, print."""

import json
import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ffscope.errors import FfscopeError
from ffscope.memory import parse_layers

if TYPE_CHECKING:
    from ffscope.analysis.trace import Contribution, Prediction, Story
    from ffscope.models.check import Finding
    from ffscope.models.memory_model import MemoryModel

app = typer.Typer(
    name="ffscope",
    help="See what the feed-forward layers of a transformer store.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
out = Console(highlight=False)
out.width = max(out.width, 80)  # a narrower table says nothing
err = Console(stderr=True, highlight=False)
_debugging = False


def _debug(wanted: bool) -> bool:
    global _debugging
    _debugging = _debugging or wanted
    return wanted


def _version(wanted: bool) -> bool:
    if wanted:
        import ffscope

        out.print(f"ffscope {ffscope.__version__}")
        raise typer.Exit
    return wanted


Model = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A hub name, a folder, a .gguf file, or the bundled default smollm2-135m."),
]
Device = Annotated[str, typer.Option(help="Where to run: auto, cpu, cuda, cuda:1 …")]
Dtype = Annotated[
    Literal["auto", "float32", "bfloat16", "float16", "float64"],
    typer.Option(help="Precision; auto is float32 on a CPU, else the model's own."),
]
LensName = Annotated[
    Literal["norm", "raw"],
    typer.Option("--lens", help="How vectors are read over the vocabulary: as the model itself does, or as h·E."),
]
Bos = Annotated[bool, typer.Option("--bos/--no-bos", help="Put the BOS token in front of the text.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Trust = Annotated[
    bool, typer.Option("--trust-remote-code", help="Run code that comes with the model. Only if you trust it.")
]
Debug = Annotated[bool, typer.Option("--debug", callback=_debug, help="Show the traceback of an error.")]


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    pass


@app.command()
def check(
    model: Model, device: Device = "auto", json_: Json = False, trust_remote_code: Trust = False, debug: Debug = False
) -> None:
    """Prove that a model is read exactly: every identity, in float32, with its largest relative error. Needs no tokenizer."""
    with _working(f"Loading {model} …"):
        from ffscope.models.check import check
        from ffscope.models.loading import lay_out
        from ffscope.models.sources import read_model

        plain = read_model(model, device=device, dtype="float32", trust_remote_code=trust_remote_code)
        loaded = lay_out(plain, source=model)
    with _working("Checking every layer …"):
        findings = check(loaded)
    if json_:
        found = [{**asdict(finding), "holds": finding.holds} for finding in findings]
        out.print_json(json.dumps({"model": str(loaded), "discovered": loaded.discovered, "findings": found}))
    else:
        _print_findings(loaded, findings)
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


@app.command()
def trace(
    model: Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text whose next token is predicted.")],
    memories: Annotated[int, typer.Option(min=1, help="Memories shown per layer.")] = 3,
    layers: Annotated[str | None, typer.Option(help="Layers shown, such as 0,24-29; all by default.")] = None,
    lens: LensName = "norm",
    bos: Bos = True,
    device: Device = "auto",
    dtype: Dtype = "auto",
    json_: Json = False,
    trust_remote_code: Trust = False,
    debug: Debug = False,
) -> None:
    """Follow the prediction after TEXT through the layers: before → the memories that contribute most → after.

    Memories are ranked by |coefficient| × ‖value‖; one with a negative coefficient is shown with what it then promotes, the
    opposite of its value. The case says whose prediction the output keeps: the residual's, the ffn's, both (agreement) or
    neither (composition).
    """
    with _working(f"Loading {model} …"):
        from ffscope.analysis.trace import tell
        from ffscope.models.loading import load

        loaded = load(model, device, dtype, trust_remote_code=trust_remote_code)
    chosen = None if layers is None else parse_layers(layers, loaded.layers)
    story = tell(loaded, text, layers=chosen, memories=memories, lens=lens, bos=bos)
    if json_:
        out.print_json(json.dumps(asdict(story)))
    else:
        _print_story(story)


@app.command()
def demo(debug: Debug = False) -> None:
    """Load the bundled model, prove it, and trace a prompt."""
    model, text = "smollm2-135m", "The capital of France is"
    for command, run in (
        (f"ffscope check {model}", lambda: check(model)),
        (f'ffscope trace {model} "{text}"', lambda: trace(model, text)),
    ):
        out.print(Text(f"\n$ {command}", style="bold"))
        run()
    out.print("\nYour own model, in the same way (a folder, a hub name or a .gguf file):")
    command = "ffscope" if shutil.which("ffscope") else sys.argv[0]
    out.print(f'{command} check MODEL\n{command} trace MODEL "your text"', markup=False)


def main() -> None:
    """Run the command line; an error is one sentence on standard error, and an exit code."""
    try:
        app()
    except FfscopeError as error:
        if _debugging:
            raise
        err.print(Text("error: ", style="bold red") + Text(str(error)), soft_wrap=True)
        sys.exit(error.exit_code)


@contextmanager
def _working(what: str) -> Iterator[None]:
    """Say what takes long: a spinner on a terminal, a line elsewhere. Only our own word is heard meanwhile."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    if not err.is_terminal:
        err.print(what, markup=False)
    with err.status(Text(what)) if err.is_terminal else nullcontext():
        from transformers.utils import logging as theirs

        theirs.set_verbosity_error()
        theirs.disable_progress_bar()
        logging.basicConfig(level=logging.INFO, format="%(message)s", handlers=[_Said()])
        logging.getLogger("httpx").setLevel(logging.WARNING)
        yield


class _Said(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if record.name.startswith("ffscope") or record.levelno >= logging.WARNING:
            err.print(record.getMessage(), markup=False, soft_wrap=True)


def _print_findings(model: "MemoryModel", findings: "list[Finding]") -> None:
    how = "discovered; not in the table" if model.discovered else "in the table"
    out.print(f"{model}; layout {how}", markup=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, justify in (("identity", "left"), ("layers", "left"), ("largest error", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for finding in findings:
        first, last = finding.layers[0], finding.layers[-1]
        verdict = Text("holds", style="green") if finding.holds else Text("FAILS", style="bold red")
        table.add_row(
            finding.identity, f"{first}" if first == last else f"{first}–{last}", f"{finding.error:.1e}", verdict
        )
    out.print(table)


def _print_story(story: "Story") -> None:
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


if __name__ == "__main__":
    main()
