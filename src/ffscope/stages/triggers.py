"""For every memory the prefixes of the corpus with the highest coefficients, and counts over all of them."""

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
        label="Fires",
        kind="share",
        sql="memories.fired / greatest(memories.seen, 1)",
        help="Share of the prefixes seen with a coefficient above 0",
        unit="share, 0 to 1",
        width=5,
        filtered=True,
        mean=Mean("fires", "Fires", "Mean share of prefixes with a coefficient above 0"),
        histogram=("Share of prefixes on which memories fire", "log"),
    ),
    Measure("mean", "Mean", "real", "memories.mean", "Mean coefficient", unit="coefficient", shown=()),
    Measure(
        name="dead",
        label="Dead",
        kind="answer",
        sql="(memories.maximum <= 0)",
        help="Fired on no prefix",
        width=4,
        shown=("layer",),
    ),
    Measure(
        name="maximum",
        label="Maximum",
        kind="real",
        sql="memories.maximum",
        help="Highest coefficient",
        unit="coefficient",
        width=5.8,
        shown=("layer", "search"),
    ),
)
STAGE = Stage(
    name="triggers",
    help="Find, for every memory, the prefixes of a corpus with the highest coefficients. Interrupted, it goes on where it was.",
    needs=("sentences",),
    tables=(
        Table("triggers", "memory × rank", _COLUMNS),
        Table(
            "negative_triggers",
            "memory × rank",
            _COLUMNS,
            "with `--negative`, the same columns for the lowest coefficients, below 0; rank 1 is the lowest",
        ),
        _MEMORIES,
    ),
    options=(SearchOptions,),
    command="",  # it makes the study, so its command takes a model and a corpus
    in_run=False,
    source="memories",
    measures=_MEASURES,
    no_figure="Its triggers are what every figure is made from.",
    missing="Triggers have not been searched yet.",
)
