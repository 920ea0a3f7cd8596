"""The examples of a study: held-out prefixes, each with the model's prediction and the actual next token."""

from ffscope.options.analysis import ExampleOptions
from ffscope.stages.stage import INT, TEXT, Column, Stage, Table

STAGE = Stage(
    name="examples",
    help="Sample held-out prefixes, with the model's prediction after each.",
    after=("mutation",),
    tables=(
        Table(
            "examples",
            "sampled held-out prefix",
            (
                Column("example", INT),
                Column("sentence", INT),
                Column("position", INT),
                Column("prediction", INT),
                Column("target", INT),
                Column("text", TEXT),
            ),
        ),
    ),
    options=(ExampleOptions,),
    command="",  # written in the pass over the examples that other stages observe
    in_run=False,
    no_figure="The figures of composition and refinement show the examples.",
)
