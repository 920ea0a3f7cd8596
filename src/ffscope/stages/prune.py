"""Which memories a model can do without: held-out perplexity by the share that is pruned, in the order of several scores."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ffscope.errors import InputError
from ffscope.options.fields import Checked, Help
from ffscope.stages.stage import DOUBLE, INT, REAL, TEXT, Column, Measure, Panel, Stage, Table

RANDOM = "random"
# Memories with the lowest score are pruned first; of the redundant ones, those with the highest.
SCORES = ("effect", "effect_size", "contribution", "squared", "firing", "redundancy", RANDOM)


@dataclass(frozen=True)
class PruneOptions(Checked):
    """Which scores are compared, on how much text, and what replaces a pruned memory. With other values, all is measured anew."""

    scores: Annotated[
        str,
        Help(
            f"Scores to prune by, of {', '.join(SCORES)}; by default all for which the study has what they need.",
            metavar="NAME,NAME",
        ),
    ] = ""
    shares: Annotated[
        str,
        Help("Shares of the memories that are pruned.", metavar="SHARE,SHARE"),
    ] = "0.05,0.1,0.2,0.3,0.5,0.7"
    layer_share: Annotated[
        float,
        Help(
            "Share of each layer's memories that is also pruned alone, the other layers intact; 0 for none.",
            min=0,
            max=0.99,
        ),
    ] = 0.5
    random_seeds: Annotated[int, Help("How many times memories are drawn at random.", min=1, max=100)] = 5
    replace: Annotated[
        Literal["zero", "mean"],
        Help("What the coefficient of a pruned memory becomes: zero, or its mean over the searched text."),
    ] = "zero"
    prune_prefixes: Annotated[
        int,
        Help("About how many held-out prefixes the loss is measured at, in whole sentences.", min=1),
    ] = 5000
    prune_sentences: Annotated[
        int,
        Help("Number of searched sentences over which contributions are averaged.", min=1),
    ] = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.score_names, self.share_list

    @property
    def score_names(self) -> tuple[str, ...]:
        """The scores, by name; empty for all that are available."""
        names = tuple(dict.fromkeys(name.strip() for name in self.scores.split(",") if name.strip()))
        unknown = sorted(set(names) - set(SCORES))
        if unknown:
            raise InputError(f"There is no score {unknown[0]!r}. The scores are: {', '.join(SCORES)}.")
        return names

    @property
    def share_list(self) -> tuple[float, ...]:
        """The shares, from the smallest."""
        try:
            shares = {float(text) for text in self.shares.split(",") if text.strip()}
        except ValueError:
            shares = set()
        if not shares or not all(0 < share < 1 for share in shares):
            raise InputError(f"shares is {self.shares!r}. Expected numbers above 0 and below 1, such as 0.1,0.2,0.5.")
        return tuple(sorted(shares))


@dataclass(frozen=True)
class PrunedModelOptions(Checked):
    """The pruned model that is written instead of measuring curves."""

    out: Annotated[
        Path | None, Help("Write a pruned model into this new folder instead of measuring curves; needs --share.")
    ] = None
    share: Annotated[float | None, Help("Share of the memories that the written model is without.")] = None
    score: Annotated[Literal[SCORES], Help("The score by which they are chosen.")] = (  # type: ignore[valid-type]
        "effect_size"
    )
    ranking: Annotated[
        Literal["layer", "model"],
        Help(
            "Whether they are the lowest of every layer, since all layers of a model have one width, or those of the whole model, "
            "which needs --zero-rows."
        ),
    ] = "layer"
    zero_rows: Annotated[
        bool, Help("Keep the width, and set the values of pruned memories to 0.", flag="--zero-rows")
    ] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share is not None and not 0 < self.share < 1:
            raise InputError(f"share is {self.share!r}. Expected a number above 0 and below 1, such as 0.2.")
        if (self.out is None) != (self.share is None):
            raise InputError(
                "--share and --out belong together: the share of the memories that a written model is without, and its folder. "
                "For curves without a model, use --shares."
            )
        if self.ranking == "model" and not self.zero_rows:
            raise InputError(
                "With --ranking model, layers lose different numbers of memories, and a model's layers have one width. Add "
                "--zero-rows, or leave out --ranking."
            )


_PRUNING = Table(
    "pruning",
    "score × seed × layer × share",
    (
        Column("score", TEXT),
        Column("seed", INT, "of `random`, else null"),
        Column("layer", INT, "the only one that is pruned; null: all, in one order"),
        Column("share", REAL),
        Column("memories", INT, "how many are pruned"),
        Column("loss", DOUBLE, "mean over the held-out prefixes, in nats"),
        Column("change", DOUBLE, "of the loss"),
        Column("change_low", DOUBLE, "of the 95 % interval over prefixes"),
        Column("change_high", DOUBLE),
        Column("perplexity", DOUBLE),
    ),
)
_SCORES = Table(
    "pruning_scores",
    "memory",
    (
        Column("layer", INT),
        Column("memory", INT),
        Column("contribution", REAL, "mean |coefficient| × ‖value‖ over a sample of the searched text"),
        Column("squared", REAL, "mean of its square"),
    ),
)
_REDUNDANCY = Table(
    "redundancy",
    "memory",
    (
        Column("layer", INT),
        Column("memory", INT),
        Column(
            "redundancy", REAL, "the highest, over partners, of cosine × share of its triggers that the partner has"
        ),
        Column("partner", INT, "of the same layer; null if redundancy is 0"),
        Column("cosine", REAL, "of the two values"),
        Column("shared_triggers", INT),
        Column("triggers", INT, "how many the memory has"),
        Column("redundancy_left", REAL, "redundancy among the memories that are pruned after it"),
    ),
)
STAGE = Stage(
    name="prune",
    help="Measure held-out perplexity as memories are pruned in the order of several scores, or write a pruned model.\n\n"
    "With --out FOLDER --share 0.2 it writes a model without these memories, which transformers loads as it is.",
    after=("effects", "types"),
    tables=(_PRUNING, _SCORES, _REDUNDANCY),
    options=(PruneOptions, PrunedModelOptions),
    run="ffscope.analysis.prune:run",
    takes_model=True,
    in_run=False,
    source="redundancy",
    measures=(
        Measure(
            "redundancy",
            "Redundancy",
            "share",
            "redundancy.redundancy",
            "How far another memory of the layer has the same triggers and a parallel value",
            shown=("layer", "search"),
            filtered=True,
            histogram=("Redundancy", "linear"),
        ),
    ),
    figures=("ffscope.report.pruning:FIGURE", "ffscope.report.pruning_layers:FIGURE"),
    memory_panels=(
        Panel(
            "Redundancy",
            "table",
            "ffscope.queries.pruning:redundancy_panel",
            "The memory of this layer that has most of its triggers and a parallel value.",
        ),
    ),
)
