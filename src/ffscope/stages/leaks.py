"""Text that the model gives away word for word, the memories that hold it, and the exposure of canaries."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from ffscope.options.fields import Checked, Help
from ffscope.stages.stage import BOOL, DOUBLE, INT, REAL, TEXT, Column, Measure, Panel, Stage, Table


@dataclass(frozen=True)
class LeakOptions(Checked):
    """What counts as a leak, and for how many of them memories are removed. With other values, all is measured anew."""

    leak_tokens: Annotated[
        int, Help("How many tokens the model must complete word for word for a leak; 8 by default.", min=2)
    ] = 8
    leak_starts: Annotated[
        Literal["triggers", "all"],
        Help("Where completions may start: after the triggers of the study, or after every searched prefix."),
    ] = "triggers"
    phrase_contexts: Annotated[
        int,
        Help("In how many other contexts a continuation occurs, or most of its parts, to be a phrase.", min=1),
    ] = 3
    leak_text: Annotated[
        str | None,
        Help(
            "Also count the secrets in this text, such as all that the model was trained on, of which a study may have a part.",
            metavar="CORPUS",
        ),
    ] = None
    leaks_measured: Annotated[
        int, Help("For how many leaks the memories that hold them are measured; 30 by default.", min=0)
    ] = 30
    leak_memories: Annotated[
        int, Help("How many memories are removed one by one for each of them; 20 by default.", min=1, max=1000)
    ] = 20
    leak_prefixes: Annotated[
        int,
        Help("At about how many held-out prefixes the loss without these memories is measured.", min=1),
    ] = 2000


@dataclass(frozen=True)
class CanaryOptions(Checked):
    """Strings whose exposure is measured."""

    canaries: Annotated[
        Path | None,
        Help(
            "Measure the exposure of the strings in this file, one a line, each with its secret part in braces: my PIN is {4711}.",
            metavar="FILE",
        ),
    ] = None
    canary_samples: Annotated[
        int,
        Help(
            "With how many random candidates of the same format each is compared; all, if there are no more.",
            min=10,
        ),
    ] = 1000


@dataclass(frozen=True)
class ShownOptions(Checked):
    """Whether personal data is masked where leaks are shown."""

    show_personal: Annotated[
        bool,
        Help(
            "Show personal data and canaries in the terminal, the report and the explorer, which mask them.",
            flag="--show-personal",
        ),
    ] = False


_LEAKS = Table(
    "leaks",
    "distinct continuation that is completed",
    (
        Column("leak", INT, "from 1"),
        Column("kind", TEXT, "secret, phrase, copied"),
        Column("personal", TEXT, "kinds of personal data in it; empty for none"),
        Column("sentence", INT),
        Column("position", INT, "of the last token of the prefix"),
        Column("tokens", INT, "completed"),
        Column("prefix", TEXT),
        Column("text", TEXT, "the completion"),
        Column("rest", TEXT, "of the sentence"),
        Column("triggers", INT, "memories that have the prefix as a trigger"),
        Column("target", INT, "tokens that give it away: to the end of the first personal item, or leak_tokens"),
        Column("places", INT, "where the completion occurs in the searched text"),
        Column("contexts", INT, "other than its own in which it occurs"),
        Column("wider_places", INT, "where it occurs in the text of --leak-text; null if that was not read"),
        Column("wider_contexts", INT, "other than its own, there"),
        Column("common", REAL, "share of its parts that also occur elsewhere"),
        Column("copied", REAL, "share of its parts that occur earlier in the sentence"),
        Column("log_prob", DOUBLE, "of the first `target` tokens, in nats; null, like those below, if not measured"),
        Column("short_log_prob", DOUBLE, "with only the last tokens of the prefix"),
        Column(
            "memories", INT, "fewest whose joint removal breaks the completion; null if none of the tested sets does"
        ),
        Column("drop", DOUBLE, "of log_prob without them, or without the largest set that was tested"),
        Column("left", INT, "tokens that are still completed without them, before the first wrong one"),
        Column("random_drop", DOUBLE, "mean drop without as many random memories of the same layers"),
        Column("random_broken", REAL, "share of the random sets that break it"),
        Column("together_left", INT, "tokens without the memories of all broken leaks"),
        Column("loss_change", DOUBLE, "of the held-out loss without them"),
        Column("loss_change_low", DOUBLE),
        Column("loss_change_high", DOUBLE),
    ),
)
_MEMORIES = Table(
    "leak_memories",
    "leak × memory",
    (
        Column("leak", INT),
        Column("rank", INT, "in the order in which memories are removed together"),
        Column("layer", INT),
        Column("memory", INT),
        Column("estimate", REAL, "of the drop"),
        Column("drop", REAL, "of log_prob without this memory alone; null if only estimated"),
        Column("left", INT, "tokens that are still completed then"),
        Column("breaks", BOOL, "alone"),
        Column("drop_together", REAL, "without it and those of lower rank; null if not tested"),
        Column("left_together", INT),
        Column("holds", BOOL, "is one of the fewest that break the completion"),
    ),
)
_CANARIES = Table(
    "canaries",
    "canary",
    (
        Column("canary", INT, "line of the file, from 1"),
        Column("before", TEXT),
        Column("secret", TEXT),
        Column("after", TEXT),
        Column("space", DOUBLE, "log2 of the number of strings of the format"),
        Column("log_perplexity", DOUBLE, "of the whole string, in bits"),
        Column("candidates", INT, "that it was compared with"),
        Column("rank", INT, "among them and itself, from 1"),
        Column("all_candidates", BOOL, "whether these are all there are, so that the exposure is exact"),
        Column("exposure", DOUBLE, "in bits; a lower bound if rank is 1 and all_candidates false"),
        Column("exposure_modelled", DOUBLE, "from a skew-normal distribution; null if exact"),
    ),
    optional=True,
)
STAGE = Stage(
    name="leaks",
    help="Find text that the model gives away word for word, and the memories that hold it.\n\n"
    "With --canaries FILE it also measures the exposure of given strings.",
    after=("effects", "types", "prune", "diff", "lens"),
    tables=(_LEAKS, _MEMORIES, _CANARIES),
    options=(LeakOptions, CanaryOptions, ShownOptions),
    run="ffscope.analysis.leaks:run",
    takes_model=True,
    in_run=False,
    source="leaking",
    measures=(
        Measure(
            "leaks_held",
            "Leaks held",
            "count",
            "coalesce(leaking.leaks, 0)",
            "Leaks that need this memory: it is one of the fewest whose joint removal breaks the completion",
            unit="count",
            shown=("layer", "search"),
            filtered=True,
        ),
        Measure(
            "leak_drop",
            "Drop at leaks",
            "real",
            'leaking."drop"',
            "Largest drop of a leak’s log-probability when this memory alone is removed",
            unit="nats",
            shown=(),
        ),
    ),
    figures=("ffscope.report.leaks:FIGURE", "ffscope.report.leak_list:FIGURE", "ffscope.report.canaries:FIGURE"),
    memory_panels=(
        Panel(
            "Leaks",
            "table",
            "ffscope.queries.leaks:leaks_panel",
            "Text that the model completes word for word. Drop: of its log-probability without this memory alone, in nats, which "
            "may break it. Needed: it is one of the fewest without which the text is not completed.",
        ),
    ),
)
