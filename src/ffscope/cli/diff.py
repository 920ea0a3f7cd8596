"""The command that compares two models, and what it prints."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from ffscope.cli.loading import check_inputs, load_again, load_model
from ffscope.cli.output import print_line, program_name
from ffscope.cli.parameters import Json
from ffscope.cli.progress_output import out, showing_progress
from ffscope.cli.signature import command
from ffscope.errors import InputError
from ffscope.options.corpus import CorpusOptions
from ffscope.options.model import DeviceOptions, LoadOptions, ReloadOptions
from ffscope.options.search import SearchOptions
from ffscope.stages.diff import DiffOptions
from ffscope.tokens import visible

if TYPE_CHECKING:
    from ffscope.models.memory_model import MemoryModel
    from ffscope.queries.diff import ChangedMemory, DiffLayer, DiffSummary
    from ffscope.study.folder import Study

Before = Annotated[str, typer.Argument(metavar="A", help="The study of the model before; with --corpus, that model.")]
After = Annotated[
    str,
    typer.Argument(
        metavar="B", help="The study of the model after, to which the results are added; with --corpus, that model."
    ),
]
ModelA = Annotated[str | None, typer.Option("--model-a", help="Path or hub name of A's model, if it has moved.")]
ModelB = Annotated[str | None, typer.Option("--model-b", help="Path or hub name of B's model, if it has moved.")]
NewCorpus = Annotated[
    str | None, typer.Option("--corpus", help="A and B are models: first make the studies of both over this text.")
]
HeldOut = Annotated[str | None, typer.Option("--held-out", help="Held-out text for these studies.")]
Sentences = Annotated[int | None, typer.Option("--sentences", min=1, help="Search only this many sentences for them.")]
NewFolder = Annotated[Path | None, typer.Option("--out", help="The folder of these studies, in OUT/a and OUT/b.")]


@command()
def diff(
    a: Before,
    b: After,
    options: DiffOptions,
    load: DeviceOptions,
    model_a: ModelA = None,
    model_b: ModelB = None,
    corpus: NewCorpus = None,
    held_out: HeldOut = None,
    sentences: Sentences = None,
    out_: NewFolder = None,
    json_: Json = False,
) -> None:
    """Compare two models memory by memory: checkpoints of one run, before and after fine-tuning, or two seeds.

    A and B are studies over the same text, and the results are added to B. With --corpus and --out, A and B are models, and their
    studies are made first. If interrupted, run the same command to resume.
    """
    pairs = (
        _from_studies(a, b, load, (model_a, model_b))
        if corpus is None
        else _from_models(a, b, LoadOptions(**asdict(load)), CorpusOptions(corpus, held_out, sentences), out_)
    )
    from ffscope.differences import diff_studies

    (before, loaded_a), (after, loaded_b) = pairs
    with showing_progress() as progress:
        study = diff_studies(before, loaded_a, after, loaded_b, progress=progress, **asdict(options))
    _print(study, as_json=json_)


_Pair = tuple["Study", "MemoryModel"]


def _from_studies(a: str, b: str, load: DeviceOptions, models: tuple[str | None, str | None]) -> list[_Pair]:
    from ffscope.study.folder import Study

    for source in (a, b):
        if not (Path(source) / "study.json").is_file():
            raise InputError(
                f"{source} is not a study. Expected the folders of two studies, or two models with --corpus TEXT and --out DIR."
            )
    studies = [Study.open(folder) for folder in (a, b)]
    from ffscope.comparison.studies import refuse_other_lens, refuse_other_text

    refuse_other_text(*studies)  # before the models are loaded
    refuse_other_lens(*studies)
    return [
        (study, load_again(study.folder, ReloadOptions(model=model, **asdict(load))))
        for study, model in zip(studies, models, strict=True)
    ]


def _from_models(a: str, b: str, load: LoadOptions, corpus: CorpusOptions, folder: Path | None) -> list[_Pair]:
    if folder is None:
        raise InputError("Expected a folder for the studies of the two models: name one with --out DIR.")
    folders = [folder / name for name in ("a", "b")]
    for path in folders:
        check_inputs(corpus, path)
    loaded = [load_model(model, load) for model in (a, b)]
    from ffscope.differences import make_study

    with showing_progress() as progress:
        studies = [
            make_study(model, corpus, path, SearchOptions(), progress)
            for model, path in zip(loaded, folders, strict=True)
        ]
    return list(zip(studies, loaded, strict=True))


def _print(study: "Study", *, as_json: bool) -> None:
    from ffscope.queries.diff import changed_memories, diff_summary
    from ffscope.queries.tables import Tables

    tables = Tables(study)
    try:
        summary, changed = diff_summary(tables), changed_memories(tables)
    finally:
        tables.close()
    if as_json:
        out.print_json(json.dumps({**asdict(summary), "changed": [asdict(memory) for memory in changed]}))
        return
    _print_summary(summary)
    _print_layers(summary)
    _print_changed(changed)
    print_line(f"In {study.folder}: diff.parquet, diff_triggers.parquet. Draw the figures, or look at the pages:")
    for name in ("report", "serve"):
        print_line(f"{program_name()} {name} {shlex.quote(str(study.folder))}")


def _print_summary(summary: "DiffSummary") -> None:
    paired = "the memory of the same number" if summary.match == "index" else "the memory with the highest correlation"
    print_line(f"{visible(summary.before, longest=None)} → {visible(summary.after, longest=None)}")
    print_line(
        f"Each memory is compared with {paired} ({summary.match_reason}), over {summary.sampled_tokens:,} tokens."
    )
    predictions = summary.predictions
    if predictions is None:
        print_line(f"The predictions are not compared. {summary.why_no_predictions or ''}")
        return
    print_line(
        f"{predictions['changed']:.1%} of {int(predictions['prefixes']):,} predictions changed; KL {predictions['divergence']:.4g} "
        f"nats; perplexity {predictions['perplexity_before']:.4g} → {predictions['perplexity_after']:.4g}."
    )


def _print_layers(summary: "DiffSummary") -> None:
    by_activations = summary.match == "activations"
    heads = ["layer", "memories", "corr.", "keys", "values", "triggers", "tokens", f"> {summary.threshold:g}"]
    table = Table(
        box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0), title="kept", title_justify="left"
    )
    for head in [*heads, *(["random", "excess"] if by_activations else []), "change"]:
        table.add_column(head, justify="right", no_wrap=True)
    for layer in (*summary.layers, summary.overall):
        table.add_row(*_cells(layer, by_activations=by_activations))
    out.print(table)


def _cells(layer: "DiffLayer", *, by_activations: bool) -> list[str]:
    return [
        "all" if layer.layer is None else str(layer.layer),
        f"{layer.memories:,}",
        *(_number(each, ".3f") for each in (layer.correlation, layer.key_cosine, layer.value_cosine)),
        *(_number(each, ".1%") for each in (layer.triggers_kept, layer.top_kept, layer.universal)),
        *(_number(each, ".1%") for each in ((layer.baseline, layer.excess) if by_activations else ())),
        _number(layer.change, ".3f"),
    ]


def _print_changed(memories: "list[ChangedMemory]") -> None:
    table = Table(box=None, pad_edge=False, header_style="bold", title="changed most", title_justify="left")
    words = ("memory", "before", "promoted before", "after")
    for head in ("memory", "before", "change", "corr.", "values", "triggers", "promoted before", "after"):
        table.add_column(head, justify="left" if head in words else "right", no_wrap=head not in words[2:])
    for row in memories:
        table.add_row(
            Text(row.memory, style="magenta"),
            row.partner or "–",
            _number(row.change, ".3f"),
            _number(row.correlation, ".3f"),
            _number(row.value_cosine, ".3f"),
            _number(row.triggers_kept, ".0%"),
            _tokens(row.tokens_before),
            _tokens(row.tokens_after),
        )
    out.print(table)


def _tokens(tokens: list[str]) -> Text:
    return Text(" ".join(visible(token, 14) for token in tokens[:3]), style="cyan", no_wrap=True, overflow="ellipsis")


def _number(number: float | None, form: str) -> str:
    return "–" if number is None else f"{number:{form}}"
