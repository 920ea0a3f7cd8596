"""What text is read, and how it is split into sentences."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class CorpusOptions(Checked):
    """What is read, and how it is split."""

    corpus: Annotated[
        str,
        Help(
            "A .txt, .jsonl, .parquet or .tokens file (also .gz, .xz, .zst), a folder or glob of them, hf:NAME, "
            "or the bundled vital-articles."
        ),
    ]
    held_out: Annotated[
        str | None, Help("Documents that are not searched; by default every twentieth of the corpus.")
    ] = None
    sentences: Annotated[int | None, Help("Search the first so many sentences; all by default.", min=1)] = None
    max_tokens: Annotated[int, Help("Cut longer sentences.", min=1)] = 128
    language: Annotated[str, Help("The language whose rules part sentences.")] = "en"
    field: Annotated[str, Help("Where .jsonl and .parquet hold the text.")] = "text"
    dedupe: Annotated[bool, Help("Drop sentences that were there before.", flag="--dedupe/--no-dedupe")] = True
