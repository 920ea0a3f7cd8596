"""The largest share of a memory's triggers that come from one document. A high share suggests a memorised text."""

from collections import Counter
from typing import Any

from ffscope.stages.shards import Shards
from ffscope.stages.stage import INT, REAL, Column, Mean, Measure, Panel, Stage, Table, Work

DOCUMENT = Column("document", INT, "with the most of its triggers")
SHARE = Column("share", REAL, "of its triggers that come from it")
TABLE = Table("one_document", "memory with a trigger", (Column("layer", INT), Column("memory", INT), DOCUMENT, SHARE))


def shards(work: Work) -> Shards:
    """One shard per layer: the documents of each memory's triggers."""
    import pyarrow.parquet as pq  # imported here to keep `ffscope --help` fast

    sentences = pq.read_table(work.study.path("sentences.parquet"), columns=["sentence", "document"]).to_pydict()
    document = dict(zip(sentences["sentence"], sentences["document"], strict=True))
    triggers = pq.read_table(work.study.path("triggers.parquet"), columns=["layer", "memory", "sentence"]).to_pydict()
    layers: dict[int, dict[int, list[int]]] = {}
    for layer, memory, sentence in zip(*triggers.values(), strict=True):
        layers.setdefault(layer, {}).setdefault(memory, []).append(document[sentence])
    inputs = list(layers.items())
    return Shards(count=len(inputs), input=inputs.__getitem__, rows=rows, unit="layers")


def rows(_model: None, layer_documents: tuple[int, dict[int, list[int]]]) -> dict[str, list[Any]]:
    """The columns of one shard. It may run on another machine, so it uses its input alone."""
    layer, memories = layer_documents
    columns: dict[str, list[Any]] = {column.name: [] for column in TABLE.columns}
    for memory, documents in memories.items():
        most, hits = min(Counter(documents).items(), key=lambda item: (-item[1], item[0]))
        for column, value in zip(columns.values(), (layer, memory, most, hits / len(documents)), strict=True):
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
    shards="ffscope_documents.stage:shards",
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
