"""The corpus of a study: its documents, its sentences with their tokens, and the vocabulary."""

from ffscope.options.corpus import CorpusOptions
from ffscope.stages.stage import BOOL, INT, INTS, TEXT, Column, Stage, Table

_DOCUMENTS = Table(
    "documents",
    "document with text",
    (
        Column("document", INT),
        Column("title", TEXT),
        Column("topic", TEXT, "null where there is none"),
        Column("held_out", BOOL),
    ),
)
_SENTENCES = Table(
    "sentences",
    "sentence",
    (
        Column("sentence", INT),
        Column("document", INT),
        Column("paragraph", INT, "in its document"),
        Column("text", TEXT),
        Column("tokens", INTS, "list"),
        Column("ends", INTS, "list: where each token ends in text; empty where the tokenizer does not tell"),
        Column("next_token", INT, "after the last of tokens"),
        Column("held_out", BOOL),
    ),
)
_VOCABULARY = Table(
    "vocabulary",
    "token",
    (
        Column("token", INT),
        Column("text", TEXT, "as shown: white space visible, nothing that a terminal or a page obeys"),
    ),
)
STAGE = Stage(
    name="sentences",
    help="Read a corpus into sentences with their tokens.",
    needs=(),
    tables=(_DOCUMENTS, _SENTENCES, _VOCABULARY),
    options=(CorpusOptions,),
    command="",
    in_run=False,
    no_figure="It is the text that the other stages look at.",
)
