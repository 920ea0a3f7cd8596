"""Whether the token a value promotes most is the one that follows the triggers of its key."""

from ffscope.stages.stage import BOOL, INT, REAL, Column, Mean, Measure, Stage, Table

STAGE = Stage(
    name="agreement",
    help="Compare each value's top token with the tokens that follow its key's triggers. Needs no model.",
    needs=("triggers", "values"),
    tables=(
        Table(
            "agreement",
            "memory with a trigger",
            (
                Column("layer", INT),
                Column("memory", INT),
                Column("top_token", INT),
                Column("next_token", INT, "after its top trigger"),
                Column("agrees", BOOL),
                Column("next_rank", INT, "rank of next_token in the value, from 1"),
                Column("max_prob", REAL),
                Column("triggers", INT),
                Column("precision", REAL, "share of its triggers whose next token is top_token"),
            ),
        ),
    ),
    run="ffscope.analysis.agreement:run",
    model="none",
    source="agreement",
    measures=(
        Measure(
            name="agrees",
            label="Agreement",
            kind="answer",
            sql="agreement.agrees",
            help="Agreement: top token of the value = next token of the top trigger",
            width=6.2,
            shown=("layer", "search"),
            filtered=True,
            mean=Mean(
                "agreement",
                "Agreement",
                "Memories with agreement: top token of the value = next token of the top trigger",
            ),
        ),
        Measure(
            name="next_rank",
            label="Rank of next token",
            kind="count",
            sql="agreement.next_rank",
            help="Rank, in the value, of the token that follows the top trigger",
            unit="1 is the top",
            short="Next rank",
            rising=True,
            shown=("layer", "search"),
            histogram=("Rank, in the value, of the token that follows the top trigger", "log"),
        ),
        Measure(
            name="precision",
            label="Precision",
            kind="share",
            sql="agreement.precision",
            help="Share of triggers whose next token is the value’s top token",
            unit="share, 0 to 1",
            width=5.6,
            digits=0,
            filtered=True,
            mean=Mean("precision", "Precision", "Mean share of triggers whose next token is the value’s top token"),
            histogram=("Share of triggers followed by the value’s top token", "linear"),
        ),
    ),
    figures=(
        "ffscope.report.agreement:FIGURE",
        "ffscope.report.next_rank:FIGURE",
        "ffscope.report.agreement_by_probability:FIGURE",
        "ffscope.report.predictive_values:FIGURE",
    ),
    missing="The values have not been compared with the triggers yet.",
)
