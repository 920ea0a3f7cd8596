"""`ffscope lens`: learn the lenses of a model, from the text of a study or of a corpus."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from ffscope.cli.loading import check_inputs, starting
from ffscope.cli.output import print_stage
from ffscope.cli.parameters import Model, Readers
from ffscope.cli.progress_output import out, showing_progress
from ffscope.cli.signature import command
from ffscope.errors import InputError
from ffscope.options.corpus import OtherCorpusOptions
from ffscope.options.engine import EngineOptions
from ffscope.options.model import LoadOptions
from ffscope.stages.registry import stages

if TYPE_CHECKING:
    from ffscope.study.folder import Study


@command(help=stages()["lens"].help, more=stages()["lens"].options)
def lens(
    model: Model,
    corpus: OtherCorpusOptions,
    options: dict[str, Any],
    load: LoadOptions,
    engine: EngineOptions,
    study: Annotated[
        Path, typer.Option("--study", help="The study that the lenses are saved with: one of this model, or a new one.")
    ] = Path("lens-study"),
    readers: Readers = None,
) -> None:
    """Learn the lenses."""
    text = corpus.chosen
    if text is not None:
        check_inputs(text, study)
    if (study / "study.json").is_file():
        from ffscope.study.folder import Study

        recorded = Study.open(study).manifest["model"]["dtype"]
        load = replace(load, dtype=recorded) if load.dtype == "auto" else load
    elif text is None:
        raise InputError(
            f"{study} is not a study, so it has no text. Name a text with --corpus, or another study with --study."
        )
    with starting(model, load, engine) as running, showing_progress() as progress:
        from ffscope.pipeline import learn_lenses

        learned = learn_lenses(running, study, text, readers=readers, progress=progress, **options)
    _print_lenses(learned)
    print_stage(learned, "lens")


def _print_lenses(study: "Study") -> None:
    """The means over the layers."""
    import pyarrow.parquet as pq

    rows = pq.read_table(study.path("lenses.parquet")).to_pylist()
    table = Table(box=None, pad_edge=False, header_style="bold", title="Means over the layers", title_justify="left")
    table.add_column("lens")
    heads = {
        "divergence": "divergence, nats",
        "residual_agreement": "residual agreement",
        "agreement": "agreement of values",
        "distance": "distance from identity",
    }
    for head in heads.values():
        table.add_column(head, justify="right")
    for name in dict.fromkeys(row["lens"] for row in rows):
        of_lens = [row for row in rows if row["lens"] == name]
        table.add_row(name, *(_mean([row[column] for row in of_lens], column) for column in heads))
    out.print(table)


def _mean(values: list[float | None], column: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = sum(known) / len(known)
    return f"{mean:.1%}" if "agreement" in column else f"{mean:.3f}"
