"""The examples of a study: prefixes of held-out sentences, with what the model predicts after them and what follows."""

from ffscope.options.analysis import ExampleOptions
from ffscope.stages.stage import INT, TEXT, Column, Stage, Table

STAGE = Stage(
    name="examples",
    help="Draw held-out prefixes, with what the model predicts after them.",
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
    command="",  # the pass over the examples writes them for the stages that observe it
    in_run=False,
    no_figure="Composition and refinement draw what happens at the examples.",
)
