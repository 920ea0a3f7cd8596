"""Parameters of single commands, with their help. Options that a study records or commands share are in `ffscope.options`."""

from pathlib import Path
from typing import Annotated

import typer

from ffscope.stages.registry import measures

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A hub name, a folder, a .gguf file, a folder with fairseq's model.pt, or the bundled default smollm2-135m.",
    ),
]
StudyFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")]
OfStudy = Annotated[
    Path, typer.Option("--study", help="The folder of a study of this model; what is measured is added to it.")
]
Out = Annotated[Path, typer.Option("--out", help="The study's folder. An unfinished study in it is resumed.")]
Checkpoint = Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")]
Readers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes that read the text; the result is the same. Default: one per core, up to 16; 1 on fewer than 4 cores.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

Annotator = Annotated[str | None, typer.Option(help="The annotator's name.")]
Sample = Annotated[
    int | None, typer.Option(min=1, help="Memories per layer on the sheet, the same for all annotators. Default: 10.")
]
NamedMemories = Annotated[
    str | None, typer.Option("--memories", help="Annotate these memories instead, such as L3.17,L4.2.")
]
SampleSeed = Annotated[int | None, typer.Option("--seed", min=0, help="Seed of the sample. Default: the study's seed.")]
ReadSheet = Annotated[Path | None, typer.Option(help="A filled-in sheet to read back, .csv or .json.")]

Host = Annotated[
    str,
    typer.Option(help="Address to listen on. On any other than 127.0.0.1, others can connect; they need the token."),
]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="Default: the first free port from 8765; 0: any free port.")
]
Token = Annotated[
    str | None,
    typer.Option(
        help="Token that others need to connect. Default: a random one, where needed.", envvar="FFSCOPE_TOKEN"
    ),
]
HostNames = Annotated[
    list[str] | None, typer.Option("--name", help="Host name by which others reach this machine. Can be repeated.")
]
Browse = Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")]

_SEARCHED = [name for name, (_, measure) in measures().items() if measure.kind not in ("token", "text")]
SearchTrigger = Annotated[str, typer.Option("--trigger", help="Text contained in a trigger; case is ignored.")]
SearchPromotes = Annotated[
    str,
    typer.Option(
        "--promotes",
        help="A promoted token, spelt as ffscope prints it (␣ or a plain space for a leading space). "
        "Only the 20 top tokens of every value are searched.",
    ),
]
SearchLoose = Annotated[bool, typer.Option("--loose", help="Ignore case and surrounding spaces of the promoted token.")]
SearchPattern = Annotated[str, typer.Option("--pattern", help="Words in a pattern's description.")]
SearchKind = Annotated[str, typer.Option("--kind", help="Kind of pattern: shallow, semantic, both or none.")]
SearchLayers = Annotated[str, typer.Option("--layers", help="Layers, such as 0,24-29.")]
SearchWhere = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="Range or answer of a measure: precision=0.2.., next_rank=..10, agrees=yes, dead=no. Can be repeated. "
        f"Measures: {', '.join(_SEARCHED)}.",
    ),
]
SearchSort = Annotated[
    str,
    typer.Option("--sort", help="hits, rank, probability, memory or a measure; a leading minus reverses the order."),
]
SearchLimit = Annotated[int, typer.Option("--count", min=1, max=1000, help="How many memories to print.")]

Site = Annotated[Path, typer.Option("--out", help="A new or empty folder for the pages.")]
ExportSample = Annotated[
    int,
    typer.Option(
        "--sample", min=0, help="Random memories per layer that get a page, besides the most predictive ones."
    ),
]
ExportMemories = Annotated[
    str | None, typer.Option("--memories", help="Export these memories instead, such as L3.17,L4.2.")
]
