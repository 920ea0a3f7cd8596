"""How a layer's update is composed: how many memories are active, and how many by themselves predict what the layer predicts."""

from ffscope.options.analysis import ExampleOptions
from ffscope.stages.stage import INT, REAL, Column, Stage, Table

STAGE = Stage(
    name="composition",
    help="Count the active memories at held-out examples, and those whose value has the same top token as the layer's update.",
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
    options=(ExampleOptions,),  # it uses the lens of the values stage
    observe="ffscope.analysis.composition:observer",
    figures=("ffscope.report.active:FIGURE", "ffscope.report.zero_agreement:FIGURE"),
    missing="Composition has not been computed yet.",
)
