"""Whether what a value promotes is what follows the prefixes that trigger its key."""

from ffscope.stages.stage import BOOL, INT, REAL, Column, Mean, Measure, Stage, Table

STAGE = Stage(
    name="agreement",
    help="Hold every value against its key's triggers: is what it promotes what follows them? Needs no model.",
    needs=("triggers", "values"),
    tables=(
        Table(
            "agreement",
            "memory with a trigger",
            (
                Column("layer", INT),
                Column("memory", INT),
                Column("top_token", INT),
                Column("next_token", INT, "of its first trigger"),
                Column("agrees", BOOL),
                Column("next_rank", INT, "from 1, the rank of next_token in the value"),
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
            label="Next rank",
            kind="count",
            sql="agreement.next_rank",
            help="Rank of the next token of the top trigger in the value",
            unit="1 is the top",
            rising=True,
            shown=("layer", "search"),
            histogram=("Rank of the first trigger's next token in the value", "log"),
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
            histogram=("Precision of the values' top tokens", "linear"),
        ),
    ),
    figures=(
        "ffscope.report.agreement:FIGURE",
        "ffscope.report.next_rank:FIGURE",
        "ffscope.report.agreement_by_probability:FIGURE",
        "ffscope.report.predictive_values:FIGURE",
    ),
    missing="Values have not been held against the triggers yet.",
)
