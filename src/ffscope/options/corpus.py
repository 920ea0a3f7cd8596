"""Which text is searched, and how it is split into sentences."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Checked, Help


@dataclass(frozen=True)
class CorpusOptions(Checked):
    """The corpus, and how it is split into sentences."""

    corpus: Annotated[
        str,
        Help(
            "Text to search: a .txt, .jsonl, .parquet or .tokens file (also .gz, .xz, .zst), a folder or glob of such files, "
            "hf:NAME for a dataset on the hub, or the bundled vital-articles."
        ),
    ]
    held_out: Annotated[
        str | None,
        Help(
            "Text for the held-out examples, which is not searched; by default every twentieth document of the corpus."
        ),
    ] = None
    sentences: Annotated[
        int | None, Help("Search only this many sentences, from the beginning; all by default.", min=1)
    ] = None
    max_tokens: Annotated[int, Help("Truncate sentences to this many tokens.", min=1)] = 128
    language: Annotated[str, Help("Language of the text, for splitting it into sentences.")] = "en"
    field: Annotated[str, Help("Field or column of .jsonl and .parquet files that has the text.")] = "text"
    dedupe: Annotated[bool, Help("Drop duplicate sentences.", flag="--dedupe/--no-dedupe")] = True
