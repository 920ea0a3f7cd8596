"""One command per question: parse, call, print."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ffscope.cli.app import Debug, app
from ffscope.cli.output import (
    out,
    own_name,
    print_findings,
    print_finished,
    print_labels,
    print_stage,
    print_study,
    print_trace,
    showing_progress,
    working,
)
from ffscope.cli.parameters import (
    Annotators,
    AskedLens,
    Bare,
    BatchTokens,
    Bos,
    Checkpoint,
    Corpus,
    Dedupe,
    Device,
    Dtype,
    EncoderFolder,
    Examples,
    Field,
    HeldOut,
    Json,
    Labeller,
    LabellerBatch,
    LabellerMaxTokens,
    LabellerMemories,
    LabellerModel,
    LabellerPrice,
    LabellerTimeout,
    LabellerWorkers,
    Language,
    Layers,
    LensName,
    MaxTokens,
    Memories,
    Minutes,
    Model,
    MutationMemories,
    MutationTriggers,
    Negative,
    OtherModel,
    Out,
    PatternTriggers,
    Prefixes,
    Seed,
    Sentences,
    StudyFolder,
    Top,
    Trust,
)
from ffscope.cli.starting import begin_search, find_labeller, load_again, load_reader
from ffscope.memory_name import parse_layers


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
def convert(
    model: Model,
    out_: Annotated[Path, typer.Option("--out", help="The folder to write; it must not be there yet.")],
    trust_remote_code: Trust = False,
    debug: Debug = False,
) -> None:
    """Write a model as safetensors with its config and tokenizer, in its own precision: a folder that loads by itself.

    Made for fairseq's checkpoints (a folder with model.pt and dict.txt), which then need no unpickling; a .gguf file is written
    dequantized.
    """
    with working(f"Converting {model} …"):
        from ffscope.models.sources import convert

        made = convert(model, out_, trust_remote_code=trust_remote_code)
    size = sum(file.stat().st_size for file in out_.iterdir())
    out.print(f"{type(made).__name__}, {size / 1e6:,.1f} MB, written to {out_}", markup=False, soft_wrap=True)
    out.print(f"{own_name()} check {shlex.quote(str(out_))}", markup=False, soft_wrap=True)


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
        from ffscope.analysis.trace import trace_prediction
        from ffscope.models.loading import load

        loaded = load(model, device, dtype, trust_remote_code=trust_remote_code)
    chosen = None if layers is None else parse_layers(layers, loaded.layers)
    story = trace_prediction(loaded, text, layers=chosen, memories=memories, lens=lens, bos=bos)
    if json_:
        out.print_json(json.dumps(asdict(story)))
    else:
        print_trace(story)


@app.command()
def run(
    model: Model,
    corpus: Corpus,
    out_: Out,
    top: Top = 50,
    sentences: Sentences = None,
    minutes: Minutes = None,
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
    lens: AskedLens = None,
    examples: Examples = None,
    mutation_memories: MutationMemories = None,
    mutation_triggers: MutationTriggers = None,
    pattern_triggers: PatternTriggers = None,
    encoder: EncoderFolder = None,
    seed: Seed = 0,
    batch_tokens: BatchTokens = None,
    checkpoint: Checkpoint = 60.0,
    device: Device = "auto",
    dtype: Dtype = "auto",
    trust_remote_code: Trust = False,
    debug: Debug = False,
) -> None:
    """Make a whole study: every stage, the paper's figures and a report. Interrupted, the same command goes on."""
    loaded, asked = begin_search(locals())
    from ffscope.pipeline import run

    with showing_progress() as progress:
        study = run(loaded, **asked, progress=progress)
    print_finished(study)


@app.command()
def triggers(
    model: Model,
    corpus: Corpus,
    out_: Out,
    top: Top = 50,
    sentences: Sentences = None,
    minutes: Minutes = None,
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
    loaded, asked = begin_search(locals())
    from ffscope.pipeline import triggers

    with showing_progress() as progress:
        study = triggers(loaded, **asked, progress=progress)
    print_study(study)


@app.command()
def values(
    study: StudyFolder,
    lens: AskedLens = None,
    model: OtherModel = None,
    device: Device = "auto",
    trust_remote_code: Trust = False,
    debug: Debug = False,
) -> None:
    """Read every value over the vocabulary: the tokens it promotes and suppresses, and how sure it is of the first."""
    _analyse("values", study, model, device, trust_remote_code, lens=lens)


@app.command()
def agreement(study: StudyFolder, debug: Debug = False) -> None:
    """Hold every value against its key's triggers: is what it promotes what follows them? Needs no model."""
    from ffscope.analysis.agreement import find_agreement
    from ffscope.study.folder import Study

    with Study.adding(study) as opened, showing_progress() as progress:
        find_agreement(opened, progress=progress)
    print_stage(opened, "agreement")


@app.command()
def mutation(
    study: StudyFolder,
    mutation_memories: MutationMemories = None,
    mutation_triggers: MutationTriggers = None,
    model: OtherModel = None,
    device: Device = "auto",
    trust_remote_code: Trust = False,
    debug: Debug = False,
) -> None:
    """Remove the first, the last or a random token of triggers, and read their coefficients again."""
    asked = {"mutation_memories": mutation_memories, "mutation_triggers": mutation_triggers}
    _analyse("mutation", study, model, device, trust_remote_code, **asked)


@app.command()
def composition(
    study: StudyFolder,
    examples: Examples = None,
    model: OtherModel = None,
    device: Device = "auto",
    trust_remote_code: Trust = False,
    debug: Debug = False,
) -> None:
    """Count, at held-out examples, the active memories, and those that alone predict what their layer does."""
    _analyse("composition", study, model, device, trust_remote_code, examples=examples)


@app.command()
def refinement(
    study: StudyFolder,
    examples: Examples = None,
    lens: AskedLens = None,
    model: OtherModel = None,
    device: Device = "auto",
    trust_remote_code: Trust = False,
    debug: Debug = False,
) -> None:
    """Follow the prediction through the residual at held-out examples: when it is there, and whose it is."""
    _analyse("refinement", study, model, device, trust_remote_code, examples=examples, lens=lens)


@app.command()
def patterns(
    study: StudyFolder,
    encoder: EncoderFolder = None,
    pattern_triggers: PatternTriggers = None,
    labeller: Labeller = None,
    labeller_model: LabellerModel = None,
    labeller_memories: LabellerMemories = 10,
    labeller_workers: LabellerWorkers = 4,
    labeller_batch: LabellerBatch = False,
    labeller_price: LabellerPrice = None,
    labeller_timeout: LabellerTimeout = 300.0,
    labeller_max_tokens: LabellerMaxTokens = 2048,
    model: OtherModel = None,
    device: Device = "auto",
    trust_remote_code: Trust = False,
    debug: Debug = False,
) -> None:
    """Label what the triggers of every memory share: surface forms, and meaning beyond them.

    Every candidate is held against how often it occurs in the text at large. A language model can name patterns too (--labeller).
    """
    labeller_found, reader = find_labeller(locals()), load_reader(locals())  # a wrong address costs no waiting
    from ffscope.pipeline import label, patterns

    with showing_progress() as progress:
        found = patterns(study, reader, encoder=encoder, triggers=pattern_triggers, device=device, progress=progress)
    print_stage(found, "patterns")
    if labeller_found is not None:
        with showing_progress() as progress:
            asked: dict[str, Any] = {"memories_per_layer": labeller_memories, "workers": labeller_workers}
            print_labels(label(study, *labeller_found, batch=labeller_batch, progress=progress, **asked))


@app.command()
def report(study: StudyFolder, annotators: Annotators = None, bare: Bare = False, debug: Debug = False) -> None:
    """Draw the figures and write report.html and summary.json from what a study holds. Needs no model."""
    from ffscope.report.page import write_report
    from ffscope.study.folder import Study

    with Study.adding(study) as opened, showing_progress() as progress:
        names = annotators.split(",") if annotators else None
        write_report(opened, annotators=names, bare=bare, progress=progress)
    print_finished(opened)


@app.command()
def demo(
    out_: Annotated[Path, typer.Option("--out", help="The study's folder.")] = Path("demo-study"), debug: Debug = False
) -> None:
    """Trace a prompt through the bundled model, then make a small study of it over bundled text."""
    model = "smollm2-135m"
    small = (
        "--sentences 300 --minutes 1.5 --examples 200 --mutation-memories 2 --mutation-triggers 5 --pattern-triggers 10"
    )
    study = f"run {model} --corpus vital-articles --out {shlex.quote(str(out_))} {small}"
    for command in (f'trace {model} "The capital of France is" --layers 24-29', study):
        out.print(Text(f"\n$ ffscope {command}", style="bold"), soft_wrap=True)
        app(shlex.split(command), standalone_mode=False)
    out.print("\nLook at it in the browser:")
    out.print(f"{own_name()} serve {shlex.quote(str(out_))}", markup=False, soft_wrap=True)
    out.print("\nYour own model, in the same way (a folder, a hub name or a .gguf file):")
    out.print(f"{own_name()} run MODEL --corpus TEXT --out DIR", markup=False, soft_wrap=True)


def _analyse(stage: str, folder: Path, model: str | None, device: str, trust: bool, **asked: Any) -> None:
    """One stage on a study that has its triggers."""
    loaded = load_again(folder, model, device=device, trust_remote_code=trust)
    from ffscope.pipeline import analyse

    with showing_progress() as progress:
        study = analyse(stage, loaded, folder, progress=progress, **asked)
    print_stage(study, stage)
