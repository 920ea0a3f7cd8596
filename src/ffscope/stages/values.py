"""Every value read over the vocabulary: the tokens it promotes and suppresses, and how sure it is of the first."""

from ffscope.options.analysis import LensOptions
from ffscope.stages.stage import INT, INTS, REAL, REALS, Column, Mean, Measure, Stage, Table

STAGE = Stage(
    name="values",
    help="Read every value over the vocabulary: the tokens it promotes and suppresses, and how sure it is of the first.",
    tables=(
        Table(
            "values",
            "memory",
            (
                Column("layer", INT),
                Column("memory", INT),
                Column("norm", REAL),
                Column("top_tokens", INTS, "list"),
                Column("top_probs", REALS, "list"),
                Column("max_prob", REAL),
                Column("bottom_tokens", INTS, "list"),
                Column(
                    "next_rank",
                    INT,
                    "as in agreement.parquet: seen while the whole distribution is there; null where the memory has no trigger",
                ),
            ),
        ),
    ),
    options=(LensOptions,),
    run="ffscope.analysis.values:run",
    source="values",
    measures=(
        Measure("top", "Top token", "token", "values.top_tokens[1]", "The token that the value ranks highest", width=8),
        Measure(
            name="max_prob",
            label="Highest probability",
            kind="real",
            sql="values.max_prob",
            help="The value’s highest probability",
            unit="0 to 1",
            short="Highest prob.",
            filtered=True,
            mean=Mean(
                "max_prob", "Highest probability", "Mean of the highest probability in each value’s distribution"
            ),
            histogram=("Maximum probability of the values", "log"),
        ),
        Measure("norm", "Norm", "real", "values.norm", "Norm of the value", unit="of the value", shown=()),
    ),
    no_figure="Figures 4 to 6 compare values with triggers, which agreement does.",
    missing="Values have not been read yet.",
)
