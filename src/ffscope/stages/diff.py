"""What has changed between two models, memory by memory: the study's own, and the base that it is compared with."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from ffscope.options.fields import Checked, Help
from ffscope.stages.stage import BOOL, INT, INTS, REAL, Column, Mean, Measure, Panel, Stage, Table


@dataclass(frozen=True)
class BaseOptions(Checked):
    """What a study's model is compared with."""

    base: Annotated[str | None, Help("The folder of the other study: the model before.", metavar="DIR")] = None
    base_model: Annotated[
        str | None, Help("Path or hub name of that study's model, if it has moved since the study was made.")
    ] = None


@dataclass(frozen=True)
class DiffOptions(Checked):
    """How memories are paired, and over how much text they are compared."""

    match: Annotated[
        Literal["auto", "index", "activations"],
        Help(
            "How memories are paired: index, with the memory of the same number; activations, with the memory whose coefficients "
            "have the highest correlation with its own, over all layers; auto, by index if the weights of the two models are "
            "clearly related, else by activations."
        ),
    ] = "auto"
    diff_tokens: Annotated[
        int, Help("Number of tokens of the searched text over which coefficients are correlated.", min=2)
    ] = 20_000
    diff_prefixes: Annotated[
        int, Help("Number of held-out prefixes at which the predictions of the two models are compared.", min=1)
    ] = 10_000
    universal_above: Annotated[
        float, Help("Correlation with its partner above which a memory is counted as universal.", min=-1, max=1)
    ] = 0.5


def _stored_options(entry: dict[str, Any]) -> dict[str, Any]:
    """The options of a finished comparison, from its entry in study.json."""
    return dict(entry["options"])


_DIFF = Table(
    "diff",
    "memory, compared with another model",
    (
        Column("layer", INT),
        Column("memory", INT),
        Column("partner_layer", INT, "the memory of the base that it is compared with; null if there is none"),
        Column("partner_memory", INT),
        Column("correlation", REAL, "of the two memories' coefficients; null if one of them is constant"),
        Column("baseline", REAL, "highest correlation with random directions; null if paired by index"),
        Column("gate_cosine", REAL, "of gated layers, else null"),
        Column("key_cosine", REAL, "null if the models differ in width"),
        Column("value_cosine", REAL, "as added to the residual"),
        Column("triggers_kept", REAL, "Jaccard index; null if neither has triggers"),
        Column("mean_before", REAL, "coefficient, over the searched prefixes"),
        Column("mean_after", REAL),
        Column("firing_before", REAL, "share of the prefixes"),
        Column("firing_after", REAL),
        Column("top_before", INT, "top token of the partner's value"),
        Column("top_after", INT),
        Column("top_kept", BOOL),
        Column("rank_of_top", INT, "rank of top_before in the memory's own value, from 1"),
        Column("tokens_before", INTS, "list; the ten top tokens of the partner's value"),
        Column("contribution_before", REAL, "root mean square of ‖coefficient × value‖ over the sample"),
        Column("contribution_after", REAL),
        Column(
            "change", REAL, "of what it writes, relative to what its layer writes; null if the models differ in width"
        ),
    ),
)
_TRIGGERS = Table(
    "diff_triggers",
    "memory × rank",
    (
        Column("layer", INT),
        Column("memory", INT),
        Column("rank", INT, "of the partner's triggers, from 1 to 10"),
        Column("coefficient", REAL, "of the partner, in the base"),
        Column("sentence", INT),
        Column("position", INT),
    ),
)
_MEASURES = (
    Measure(
        name="change",
        label="Change",
        kind="real",
        sql="diff.change",
        help="Change of what the memory writes between the two models, relative to what its layer writes",
        unit="share of the layer",
        shown=("layer", "search"),
        filtered=True,
        histogram=("Change between the two models", "log"),
    ),
    Measure(
        name="partner_correlation",
        label="Correlation with its partner",
        short="Correlation",
        kind="real",
        sql="diff.correlation",
        help="Correlation of the coefficients with those of the memory’s partner in the other model",
        unit="-1 to 1",
        shown=("layer", "search"),
        filtered=True,
        mean=Mean("partner_correlation", "Correlation", "Mean correlation with the partner in the other model"),
    ),
    Measure(
        name="triggers_kept",
        label="Triggers kept",
        kind="share",
        sql="diff.triggers_kept",
        help="Triggers that the memory shares with its partner in the other model (Jaccard index)",
        unit="share, 0 to 1",
        shown=("layer",),
        filtered=True,
        mean=Mean("triggers_kept", "Triggers kept", "Mean share of triggers that are also the partner’s"),
    ),
    Measure(
        "value_cosine",
        "Cosine of values",
        "real",
        "diff.value_cosine",
        "Cosine of the memory’s value and its partner’s in the other model",
        unit="-1 to 1",
        shown=(),
    ),
    Measure(
        "key_cosine",
        "Cosine of keys",
        "real",
        "diff.key_cosine",
        "Cosine of the memory’s key and its partner’s in the other model",
        unit="-1 to 1",
        shown=(),
    ),
    Measure(
        "top_kept",
        "Top token kept",
        "answer",
        "diff.top_kept",
        "The value’s top token is that of its partner in the other model",
        shown=(),
    ),
)
STAGE = Stage(
    name="diff",
    help="Compare the model of a study with that of another, memory by memory.",
    needs=("triggers", "values"),
    after=("values", "agreement", "mutation", "composition", "refinement", "patterns", "effects", "types"),
    tables=(_DIFF, _TRIGGERS),
    options=(BaseOptions, DiffOptions),
    run="ffscope.analysis.diff:run",
    command="",  # its command takes two studies, or two models
    in_run=False,
    source="diff",
    measures=_MEASURES,
    stored_options=_stored_options,
    figures=("ffscope.report.diff_layers:FIGURE", "ffscope.report.universality:FIGURE"),
    memory_panels=(
        Panel(
            "Before and after",
            "table",
            "ffscope.queries.diff:before_and_after",
            "The memory beside its partner in the model that this one is compared with.",
        ),
    ),
)
