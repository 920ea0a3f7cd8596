"""The parameters of single commands, each with its word of help; options that are kept or shared are in `ffscope.options`."""

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
Out = Annotated[Path, typer.Option("--out", help="The study's folder; a half-done study in it is gone on with.")]
Checkpoint = Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]

Annotator = Annotated[str | None, typer.Option(help="Who annotates: the name to sign with.")]
Sample = Annotated[
    int | None, typer.Option(min=1, help="Memories of every layer that the sheet has, the same for all; 10 by default.")
]
NamedMemories = Annotated[
    str | None, typer.Option("--memories", help="Memories to annotate instead, such as L3.17,L4.2.")
]
SampleSeed = Annotated[
    int | None, typer.Option("--seed", min=0, help="Chooses the memories; by default the study's own seed.")
]
ReadSheet = Annotated[Path | None, typer.Option(help="A sheet that was filled in, .csv or .json.")]

Host = Annotated[str, typer.Option(help="Where to listen. Others can reach any but 127.0.0.1, and need the token.")]
Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="By default the first that is free from 8765 on; 0: any.")
]
Token = Annotated[
    str | None,
    typer.Option(help="What others need to get in; made where it is needed and not given.", envvar="FFSCOPE_TOKEN"),
]
HostNames = Annotated[
    list[str] | None, typer.Option("--name", help="A name under which others reach this machine; may be given again.")
]
Browse = Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")]

_SEARCHED = [name for name, (_, measure) in measures().items() if measure.kind not in ("token", "text")]
SearchTrigger = Annotated[str, typer.Option("--trigger", help="Text that a trigger holds; case does not matter.")]
SearchPromotes = Annotated[
    str,
    typer.Option(
        "--promotes",
        help="A token, spelt as it is shown (␣ for a leading space; a plain one works too). "
        "Only the 20 top tokens of every value are searched.",
    ),
]
SearchLoose = Annotated[
    bool, typer.Option("--loose", help="Ignore the promoted token's case and the spaces around it.")
]
SearchPattern = Annotated[str, typer.Option("--pattern", help="Words of a pattern's description.")]
SearchKind = Annotated[str, typer.Option("--kind", help="Kind of the patterns: shallow, semantic, both or none.")]
SearchLayers = Annotated[str, typer.Option("--layers", help="Layers, such as 0,24-29.")]
SearchWhere = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        help="A measure's range or answer, such as precision=0.2.. or next_rank=..10 or agrees=yes or dead=no; may be given again. "
        f"Measures: {', '.join(_SEARCHED)}.",
    ),
]
SearchSort = Annotated[
    str, typer.Option("--sort", help="hits, rank, probability, memory or a measure; a minus in front turns it round.")
]
SearchLimit = Annotated[int, typer.Option("--count", min=1, max=1000, help="Memories shown.")]

Site = Annotated[Path, typer.Option("--out", help="A new or empty folder for the pages.")]
ExportSample = Annotated[
    int,
    typer.Option(
        "--sample", min=0, help="Memories of every layer that get a page, by lot, beside the most predictive."
    ),
]
ExportMemories = Annotated[str | None, typer.Option("--memories", help="Memories that get a page instead: L3.17,L4.2")]
