"""The corpus of a study: its documents, its sentences with their tokens, and the vocabulary."""

from ffscope.options.corpus import CorpusOptions
from ffscope.stages.stage import BOOL, INT, INTS, TEXT, Column, Stage, Table

_DOCUMENTS = Table(
    "documents",
    "document with text",
    (
        Column("document", INT),
        Column("title", TEXT),
        Column("topic", TEXT, "null if there is none"),
        Column("held_out", BOOL),
    ),
)
_SENTENCES = Table(
    "sentences",
    "sentence",
    (
        Column("sentence", INT),
        Column("document", INT),
        Column("paragraph", INT, "position in its document"),
        Column("text", TEXT),
        Column("tokens", INTS, "list"),
        Column("ends", INTS, "list: offset in text where each token ends; empty if the tokenizer gives no offsets"),
        Column("next_token", INT, "after the last token"),
        Column("held_out", BOOL),
    ),
)
_VOCABULARY = Table(
    "vocabulary",
    "token",
    (
        Column("token", INT),
        Column("text", TEXT, "as displayed: white space visible, control characters escaped"),
    ),
)
STAGE = Stage(
    name="sentences",
    help="Split a corpus into tokenized sentences.",
    needs=(),
    tables=(_DOCUMENTS, _SENTENCES, _VOCABULARY),
    options=(CorpusOptions,),
    command="",
    in_run=False,
    no_figure="It is the text that the other stages use.",
)
