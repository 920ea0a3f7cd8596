"""What the model would lose without each memory: the change of its loss, and of its prediction's log-probability."""

from dataclasses import dataclass
from typing import Annotated, Literal

from ffscope.errors import InputError
from ffscope.options.analysis import ExampleOptions
from ffscope.options.fields import Help, StudyOptions
from ffscope.stages.stage import BOOL, DOUBLE, INT, INTS, REAL, REALS, TEXT, Column, Mean, Measure, Panel, Stage, Table


@dataclass(frozen=True)
class EffectOptions(StudyOptions):
    """What a memory is replaced by, how effects are estimated, and how many are measured."""

    baseline: Annotated[
        Literal["zero", "mean"],
        Help("What a coefficient is set to when its memory is taken away: zero, or its mean over the searched text."),
    ] = "zero"
    steps: Annotated[
        int,
        Help(
            "Steps of the integral from which effects are estimated, layer by layer; 1, the default, is the first-order "
            "estimate, for all layers at once.",
            min=1,
            max=100,
        ),
    ] = 1
    effect_memories: Annotated[
        int,
        Help(
            "Memories per layer whose effects are also measured exactly, by running the model without each: a third with the "
            "strongest estimates, a third with the weakest, a third at random; 30 by default.",
            min=0,
        ),
    ] = 30
    exact_examples: Annotated[int, Help("Examples at which these are measured; 100 by default.", min=2)] = 100
    group_examples: Annotated[
        int, Help("Examples at which the model is run without whole groups of memories; 500 by default.", min=2)
    ] = 500
    least: Annotated[
        str,
        Help(
            "Percentages of the least important memories that are taken away together; 10,20,50 by default.",
            metavar="N,N",
        ),
    ] = "10,20,50"

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.percentages

    @property
    def percentages(self) -> list[float]:
        """`least` as numbers."""
        try:
            numbers = [float(text) for text in self.least.split(",") if text.strip()]
        except ValueError:
            numbers = [-1.0]
        if not all(0 < number < 100 for number in numbers):
            raise InputError(f"least is {self.least!r}. Expected percentages above 0 and below 100, such as 10,20,50.")
        return numbers


_EFFECTS = Table(
    "effects",
    "memory",
    (
        Column("layer", INT),
        Column("memory", INT),
        Column("effect", REAL, "estimated mean change of the loss without the memory, in nats"),
        Column("effect_low", REAL, "of the 95 % interval over examples"),
        Column("effect_high", REAL),
        Column("effect_size", REAL, "mean absolute change"),
        Column("effect_on_prediction", REAL, "of the predicted token's log-probability"),
        Column("direct", REAL, "part of effect with the final norm's scale held; null without a direct path"),
        Column("direct_size", REAL, "mean absolute"),
        Column("norm_size", REAL, "mean absolute part through the final norm's scale"),
        Column("direct_logit", REAL, "what the memory adds to the logit of the true next token"),
        Column("loss_gradient", REAL, "mean of Σ |∂ loss / ∂ coefficient| over the positions"),
        Column("contribution", REAL, "mean |coefficient| × ‖value‖ at the examples"),
        Column("fires_here", REAL, "share of the examples where it fires"),
        Column("helped_examples", INTS, "where the loss would rise most"),
        Column("helped_changes", REALS),
        Column("hurt_examples", INTS, "where it would fall most"),
        Column("hurt_changes", REALS),
    ),
)
_EXACT = Table(
    "exact_effects",
    "memory whose effect was measured",
    (
        Column("layer", INT),
        Column("memory", INT),
        Column("selected", TEXT, "strongest, weakest, random"),
        Column("effect", REAL, "measured mean change of the loss"),
        Column("effect_low", REAL),
        Column("effect_high", REAL),
        Column("effect_size", REAL, "mean absolute"),
        Column("estimate", REAL, "at the same examples"),
        Column("prediction", REAL, "measured change of the predicted token's log-probability"),
        Column("prediction_estimate", REAL),
        Column("effect_square", DOUBLE, "mean square over the examples"),
        Column("estimate_square", DOUBLE),
        Column("product", DOUBLE, "mean of effect × estimate over the examples"),
    ),
)
_GROUPS = Table(
    "effect_groups",
    "group of memories",
    (
        Column("group", TEXT),
        Column("random", BOOL, "as many memories at random, instead of the group"),
        Column("memories", INT),
        Column("effect", REAL, "measured mean change of the loss without all of them"),
        Column("effect_low", REAL),
        Column("effect_high", REAL),
        Column("effect_on_prediction", REAL),
    ),
)
_MEASURES = (
    Measure(
        name="effect",
        label="Effect",
        kind="real",
        sql="effects.effect",
        help="Effect: estimated change of the loss when the memory is taken away; above 0 the model needs it",
        unit="nats",
        width=6.2,
        shown=("layer", "search"),
        filtered=True,
    ),
    Measure(
        name="effect_size",
        label="Size of the effect",
        short="Effect size",
        kind="real",
        sql="effects.effect_size",
        help="Mean absolute effect over the examples, whether the memory helps or hurts",
        unit="nats",
        width=6.2,
        shown=("layer", "search"),
        mean=Mean("effect_size", "Size of the effect", "Mean size of a memory’s effect on the loss, in nats"),
        histogram=("Size of the effect on the loss, in nats", "log"),
    ),
    Measure(
        name="direct",
        label="Direct effect",
        kind="real",
        sql="effects.direct",
        help="Part of the effect that reaches the logits directly, not through later layers",
        unit="nats",
        shown=(),
    ),
)
STAGE = Stage(
    name="effects",
    help="Estimate what taking each memory away does to the loss and the prediction, and measure it for some.\n\n"
    "The estimate of all memories takes one forward and at most two backward passes over held-out examples.",
    needs=("triggers", "examples"),
    after=("refinement", "patterns", "labels"),
    tables=(_EFFECTS, _EXACT, _GROUPS),
    options=(ExampleOptions, EffectOptions),
    run="ffscope.analysis.effects:run",
    source="effects",
    measures=_MEASURES,
    figures=(
        "ffscope.report.effect_concentration:FIGURE",
        "ffscope.report.effect_estimate:FIGURE",
        "ffscope.report.effect_scores:FIGURE",
        "ffscope.report.effect_kinds:FIGURE",
        "ffscope.report.effect_groups:FIGURE",
    ),
    memory_panels=(
        Panel(
            "Effect",
            "table",
            "ffscope.queries.effects:effect_panel",
            "What changes when the memory is taken away, at held-out examples.",
        ),
    ),
    missing="Effects have not been estimated yet.",
)
