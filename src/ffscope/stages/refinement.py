"""How the prediction is refined from layer to layer, and which component determines each layer's output."""

from ffscope.options.analysis import ExampleOptions, LensOptions
from ffscope.stages.stage import BOOL, INT, REAL, TEXT, Column, Stage, Table

STAGE = Stage(
    name="refinement",
    help="Follow the prediction at held-out examples: from which layer on the residual has it, and which component determines "
    "each layer's output.",
    after=("composition",),
    tables=(
        Table(
            "refinement",
            "example × layer",
            (
                Column("example", INT),
                Column("layer", INT),
                Column("residual_top", INT),
                Column("ff_top", INT),
                Column("output_top", INT),
                Column("residual_prob", REAL),
                Column("residual_rank", INT),
                Column("case", TEXT),
            ),
        ),
        Table(
            "last_layer",
            "sampled composition case of the last layer",
            (
                Column("example", INT),
                Column("residual_top", INT),
                Column("output_top", INT),
                Column("similarity", REAL),
                Column("related", BOOL),
            ),
        ),
    ),
    options=(LensOptions, ExampleOptions),
    observe="ffscope.analysis.refinement:observer",
    figures=(
        "ffscope.report.residual_agreement:FIGURE",
        "ffscope.report.residual_probability:FIGURE",
        "ffscope.report.cases:FIGURE",
        "ffscope.report.last_layer:FIGURE",
    ),
    missing="Refinement has not been computed yet.",
)
