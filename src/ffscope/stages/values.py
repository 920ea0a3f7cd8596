"""Every value projected to the vocabulary: the tokens it promotes and suppresses, with their probabilities."""

from ffscope.options.analysis import LensOptions
from ffscope.stages.stage import INT, INTS, REAL, REALS, Column, Mean, Measure, Stage, Table

STAGE = Stage(
    name="values",
    help="Project every value to the vocabulary: the tokens it promotes and suppresses, and its highest probability.",
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
                    "as in agreement.parquet; null if the memory has no trigger",
                ),
            ),
        ),
    ),
    options=(LensOptions,),
    shards="ffscope.analysis.values:shards",
    source="values",
    measures=(
        Measure(
            "top",
            "Top token",
            "token",
            "values.top_tokens[1]",
            "The token that the value promotes most",
            width=8,
        ),
        Measure(
            name="max_prob",
            label="Highest probability",
            kind="real",
            sql="values.max_prob",
            help="Highest probability in the value’s distribution",
            unit="0 to 1",
            short="Highest prob.",
            filtered=True,
            mean=Mean(
                "max_prob", "Highest probability", "Mean of the highest probability in each value’s distribution"
            ),
            histogram=("Highest probability in the value’s distribution", "log"),
        ),
        Measure(
            "norm", "Norm of the value", "real", "values.norm", "Euclidean norm of the value", unit="norm", shown=()
        ),
    ),
    no_figure="The values are compared with the triggers in the figures of agreement (4 to 6).",
    missing="The values have not been projected to the vocabulary yet.",
)
