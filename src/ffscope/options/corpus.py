"""Which text is searched, and how it is split into sentences."""

from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class OtherCorpusOptions(CorpusOptions):
    """A corpus, or none where the text of an existing study is used."""

    corpus: Annotated[str | None, Help("Text to use, as in `ffscope run`; by default that of the study.")] = None  # type: ignore[assignment]

    @property
    def chosen(self) -> CorpusOptions | None:
        """The corpus, if there is one."""
        return None if self.corpus is None else CorpusOptions(**asdict(self))
