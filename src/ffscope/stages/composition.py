"""How a layer's update is made: how many memories are active, and whether any of them alone predicts what their sum does."""

from ffscope.options.analysis import ExampleOptions
from ffscope.stages.stage import INT, REAL, Column, Stage, Table

STAGE = Stage(
    name="composition",
    help="Count, at held-out examples, the active memories, and those that alone predict what their layer does.",
    needs=("triggers", "values"),
    after=("examples",),
    tables=(
        Table(
            "composition",
            "example × layer",
            (
                Column("example", INT),
                Column("layer", INT),
                Column("active", INT),
                Column("active_fraction", REAL),
                Column("effective", INT),
                Column("ff_top", INT),
                Column("matches", INT),
            ),
        ),
    ),
    options=(ExampleOptions,),  # its lens is that of the values
    observe="ffscope.analysis.composition:observer",
    figures=("ffscope.report.active:FIGURE", "ffscope.report.zero_agreement:FIGURE"),
    missing="Composition has not been looked at yet.",
)
