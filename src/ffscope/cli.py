"""One command per question: parse, call, print."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ffscope.errors import FfscopeError
from ffscope.memory import parse_layers, parse_numbers
from ffscope.options import (
    BatchTokens,
    Bos,
    Checkpoint,
    Corpus,
    Dedupe,
    Device,
    Dtype,
    Field,
    HeldOut,
    Json,
    Language,
    Layers,
    LensName,
    MaxTokens,
    Memories,
    Model,
    Negative,
    Out,
    Prefixes,
    Seed,
    Sentences,
    Top,
    Trust,
)
from ffscope.terminal import (
    err,
    out,
    own_name,
    print_findings,
    print_memory,
    print_story,
    print_study,
    showing_progress,
    working,
)

app = typer.Typer(
    name="ffscope",
    help="See what the feed-forward layers of a transformer store.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
    with working(f"Loading {model} …"):
        from ffscope.models.check import check
        from ffscope.models.loading import lay_out
        from ffscope.models.sources import read_model

        plain = read_model(model, device=device, dtype="float32", trust_remote_code=trust_remote_code)
        loaded = lay_out(plain, source=model)
    with working("Checking every layer …"):
        findings = check(loaded)
    if json_:
        found = [{**asdict(finding), "holds": finding.holds} for finding in findings]
        out.print_json(json.dumps({"model": str(loaded), "discovered": loaded.discovered, "findings": found}))
    else:
        print_findings(loaded, findings)
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


@app.command()
def trace(
    model: Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text whose next token is predicted.")],
    memories: Annotated[int, typer.Option(min=1, help="Memories shown per layer.")] = 3,
    layers: Layers = None,
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
    with working(f"Loading {model} …"):
        from ffscope.analysis.trace import tell
        from ffscope.models.loading import load

        loaded = load(model, device, dtype, trust_remote_code=trust_remote_code)
    chosen = None if layers is None else parse_layers(layers, loaded.layers)
    story = tell(loaded, text, layers=chosen, memories=memories, lens=lens, bos=bos)
    if json_:
        out.print_json(json.dumps(asdict(story)))
    else:
        print_story(story)


@app.command()
def triggers(
    model: Model,
    corpus: Corpus,
    out_: Out,
    top: Top = 50,
    sentences: Sentences = None,
    max_tokens: MaxTokens = 128,
    prefixes: Prefixes = "best",
    held_out: HeldOut = None,
    language: Language = "en",
    field: Field = "text",
    dedupe: Dedupe = True,
    layers: Layers = None,
    memories: Memories = None,
    negative: Negative = False,
    bos: Bos = True,
    seed: Seed = 0,
    batch_tokens: BatchTokens = None,
    checkpoint: Checkpoint = 60.0,
    device: Device = "auto",
    dtype: Dtype = "auto",
    trust_remote_code: Trust = False,
    debug: Debug = False,
) -> None:
    """Find, for every memory, the prefixes of a corpus with the highest coefficients. Interrupted, it goes on where it was."""
    _check_early(out_, corpus, held_out)
    with working(f"Loading {model} …"):
        from ffscope.analysis.sentences import Reading
        from ffscope.analysis.triggers import Searching
        from ffscope.models.loading import load
        from ffscope.pipeline import triggers

        loaded = load(model, device, dtype, trust_remote_code=trust_remote_code)
    reading = Reading(corpus, held_out, sentences, max_tokens, language, field, dedupe)
    chosen = None if layers is None else parse_layers(layers, loaded.layers)
    some = None if memories is None else parse_numbers(memories, max(loaded.memories), "memories")
    searching = Searching(top, prefixes, bos, chosen, some, negative, seed, batch_tokens)
    with showing_progress() as progress:
        study = triggers(loaded, reading, out_, searching=searching, checkpoint_every=checkpoint, progress=progress)
    print_study(study)


@app.command()
def show(
    study: Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")],
    memory: Annotated[str, typer.Argument(metavar="MEMORY", help="Such as L3.17.")],
    count: Annotated[int, typer.Option(min=1, help="Triggers shown.")] = 25,
    json_: Json = False,
    debug: Debug = False,
) -> None:
    """Print a memory's triggers: the prefix, its last token shaded by the coefficient, and the token that follows."""
    from ffscope.queries import memory_page

    page = memory_page(study, memory)
    if json_:
        out.print_json(json.dumps(asdict(page)))
    else:
        print_memory(page, count)


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
    command = own_name()
    out.print(f'{command} check MODEL\n{command} trace MODEL "your text"', markup=False)
    out.print(
        f"{command} triggers MODEL --corpus vital-articles --sentences 300 --out study", markup=False, soft_wrap=True
    )


def _check_early(folder: Path, *sources: str | None) -> None:
    """Say what is wrong with a study's folder or its corpora before a model is loaded."""
    from ffscope.corpus.documents import Corpus
    from ffscope.study import refuse_foreign

    refuse_foreign(folder)
    for source in sources:
        if source is not None:
            Corpus(source)


def main() -> None:
    """Run the command line; an error is one sentence on standard error, and an exit code."""
    try:
        app()
    except KeyboardInterrupt:
        err.print("Interrupted.")
        sys.exit(130)
    except FfscopeError as error:
        if _debugging:
            raise
        err.print(Text("error: ", style="bold red") + Text(str(error)), soft_wrap=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
