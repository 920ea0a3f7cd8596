"""The largest share of a memory's triggers that come from one document. A high share suggests a memorised text."""

from collections import Counter
from typing import Any

from ffscope.stages.stage import INT, REAL, Column, Mean, Measure, Panel, Stage, Table, Work

DOCUMENT = Column("document", INT, "with the most of its triggers")
SHARE = Column("share", REAL, "of its triggers that come from it")
TABLE = Table("one_document", "memory with a trigger", (Column("layer", INT), Column("memory", INT), DOCUMENT, SHARE))


def rows(work: Work) -> dict[str, list[Any]]:
    """The columns of the table, from the study's triggers and sentences."""
    import pyarrow.parquet as pq  # imported here to keep `ffscope --help` fast

    sentences = pq.read_table(work.study.path("sentences.parquet"), columns=["sentence", "document"]).to_pydict()
    document = dict(zip(sentences["sentence"], sentences["document"], strict=True))
    triggers = pq.read_table(work.study.path("triggers.parquet"), columns=["layer", "memory", "sentence"]).to_pydict()
    counts: dict[tuple[int, int], Counter[int]] = {}
    for layer, memory, sentence in zip(*triggers.values(), strict=True):
        counts.setdefault((layer, memory), Counter())[document[sentence]] += 1
    columns: dict[str, list[Any]] = {column.name: [] for column in TABLE.columns}
    for name, count in counts.items():
        most, hits = min(count.items(), key=lambda item: (-item[1], item[0]))
        for column, value in zip(columns.values(), (*name, most, hits / count.total()), strict=True):
            column.append(value)
    return columns


def panel(tables: Any, memory: Any) -> str | None:
    """A sentence for the memory page."""
    columns = tables.columns(TABLE.name, "layer", "memory", "document", "share")
    here = (columns["layer"] == memory.layer) & (columns["memory"] == memory.memory)
    share, document = columns["share"][here].sum(), columns["document"][here].sum()
    return f"{share:.0%} of its triggers come from document {document}." if here.any() else None


STAGE = Stage(
    name="documents",
    help="Compute the largest share of a memory's triggers from one document. Needs no model.",
    tables=(TABLE,),
    rows="ffscope_documents.stage:rows",
    model="none",
    source=TABLE.name,
    measures=(
        Measure(
            name="one_document",
            label="Share from one document",
            short="One document",
            kind="share",
            sql="one_document.share",
            help="Largest share of triggers that come from one document",
            mean=Mean(
                "one_document",
                "Share from one document",
                "Mean of the largest share of triggers that come from one document",
            ),
        ),
    ),
    figures=("ffscope_documents.figure:FIGURE",),
    memory_panels=(Panel("Documents", "text", "ffscope_documents.stage:panel"),),
    missing="The documents of the triggers have not been counted yet.",
)
