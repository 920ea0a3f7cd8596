"""The prefixes of the corpus with the highest coefficients for each memory, and statistics over all prefixes."""

from ffscope.options.search import SearchOptions
from ffscope.stages.stage import INT, INT64, INTS, REAL, REALS, Column, Mean, Measure, Stage, Table

_COLUMNS = (
    Column("layer", INT),
    Column("memory", INT),
    Column("rank", INT, "from 1"),
    Column("coefficient", REAL),
    Column("sentence", INT),
    Column("position", INT),
    Column("next_token", INT),
)
_MEMORIES = Table(
    "memories",
    "searched memory",
    (
        Column("layer", INT),
        Column("memory", INT),
        Column("seen", INT64),
        Column("fired", INT64),
        Column("mean", REAL),
        Column("maximum", REAL),
        Column("histogram", INTS, "list"),
        Column("sample_coefficients", REALS, "list"),
        Column("sample_sentences", INTS, "list"),
        Column("sample_positions", INTS, "list"),
    ),
)
_MEASURES = (
    Measure(
        name="fires",
        label="Firing rate",
        kind="share",
        sql="memories.fired / greatest(memories.seen, 1)",
        help="Share of prefixes with a coefficient above 0",
        unit="share, 0 to 1",
        width=6,
        filtered=True,
        mean=Mean("fires", "Firing rate", "Mean share of prefixes with a coefficient above 0"),
        histogram=("Firing rate: share of prefixes with a coefficient above 0", "log"),
    ),
    Measure(
        "mean",
        "Mean coefficient",
        "real",
        "memories.mean",
        "Mean coefficient over the prefixes",
        unit="coefficient",
        shown=(),
    ),
    Measure(
        name="dead",
        label="Dead",
        kind="answer",
        sql="(memories.maximum <= 0)",
        help="Did not fire on any prefix",
        width=4,
        shown=("layer",),
    ),
    Measure(
        name="maximum",
        label="Maximum coefficient",
        short="Maximum",
        kind="real",
        sql="memories.maximum",
        help="Highest coefficient on any prefix",
        unit="coefficient",
        width=5.8,
        shown=("layer", "search"),
    ),
)
STAGE = Stage(
    name="triggers",
    help="Find the prefixes of a corpus with the highest coefficients for each memory.\n\n"
    "If it is interrupted, run the same command to resume.",
    needs=("sentences",),
    tables=(
        Table("triggers", "memory × rank", _COLUMNS),
        Table(
            "negative_triggers",
            "memory × rank",
            _COLUMNS,
            "with `--negative`: the same columns for the lowest coefficients below 0; rank 1 is the lowest",
            optional=True,
        ),
        _MEMORIES,
    ),
    options=(SearchOptions,),
    command="",  # it creates the study, so its command takes a model and a corpus
    in_run=False,
    source="memories",
    measures=_MEASURES,
    no_figure="Every figure is based on its triggers.",
    missing="Triggers have not been searched for yet.",
)
