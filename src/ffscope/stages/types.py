"""The types of memories that have been published: detectors of tokens, positional, promoting, entropy memories …"""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.analysis import LensOptions
from ffscope.options.fields import Help, StudyOptions
from ffscope.stages.stage import BOOL, INT, INTS, REAL, TEXT, Column, Measure, Panel, Stage, Table

# The columns of the types, in the order in which the column `types` names them, and their names there.
TYPE_NAMES = {
    "dead": "dead",
    "token_detector": "token detector",
    "suppresses_token": "suppresses its tokens",
    "ngram_detector": "n-gram detector",
    "positional_memory": "positional",
    "promoter": "promoter",
    "suppressor": "suppressor",
    "token_frequency": "token frequency",
    "entropy": "entropy",
}


@dataclass(frozen=True)
class TypeOptions(StudyOptions):
    """The sample in which types are looked for, and their thresholds."""

    type_sentences: Annotated[
        int, Help("Number of searched sentences in which firings are counted for the types; 4000 by default.", min=1)
    ] = 4000
    type_firings: Annotated[
        int,
        Help("Least number of firings in these sentences for a memory to be called a detector; 20 by default.", min=1),
    ] = 20
    type_coverage: Annotated[
        float,
        Help("Share of its firings that the tokens of a detector must cover; 0.95 by default.", min=0.5, max=1),
    ] = 0.95
    type_presence: Annotated[
        float,
        Help(
            "Share of the occurrences of each of its tokens on which a detector fires; 0.95 by default.", min=0, max=1
        ),
    ] = 0.95
    type_ngrams: Annotated[
        int, Help("Highest number of tokens, bigrams or trigrams that a detector has; 5 by default.", min=1, max=100)
    ] = 5
    type_positions: Annotated[
        int,
        Help("Number of first positions over which firing is compared for positional memories; 32 by default.", min=2),
    ] = 32
    type_position_sentences: Annotated[
        int,
        Help(
            "Least number of sentences with that many positions; with fewer, fewer are compared; 100 by default.", min=2
        ),
    ] = 100
    type_information: Annotated[
        float,
        Help(
            "Least mutual information of a positional memory with the position, in nats; 0.05 by default.",
            min=0,
            max=0.7,
        ),
    ] = 0.05
    type_kurtosis: Annotated[
        float,
        Help("Least kurtosis of the logits of a promoter's or suppressor's value; 10 by default (normal: 3).", min=1),
    ] = 10.0
    type_correlation: Annotated[
        float,
        Help(
            "Least correlation, of either sign, of a token-frequency value with log frequency; 0.5 by default.",
            min=0,
            max=1,
        ),
    ] = 0.5
    type_norm: Annotated[
        float,
        Help(
            "Least share of the layer's values with a lower norm than an entropy memory's; 0.9 by default.",
            min=0,
            max=1,
        ),
    ] = 0.9
    type_variance: Annotated[
        float,
        Help("Highest share of the layer's values with a lower logit variance than its; 0.1 by default.", min=0, max=1),
    ] = 0.1
    type_through_norm: Annotated[
        float,
        Help(
            "Least share of an entropy memory's effect that runs through the final norm; 0.5 by default.", min=0, max=1
        ),
    ] = 0.5


_COLUMNS = (
    Column("layer", INT),
    Column("memory", INT),
    Column("types", TEXT, "all its types, or `none`"),
    *(Column(name, BOOL) for name in TYPE_NAMES),
    Column("firings", INT, "in the sample"),
    Column("unigrams", INT, "how many cover its firings; null if it fires too rarely"),
    Column("bigrams", INT),
    Column("trigrams", INT),
    Column("ngram", INT, "1 to 3: the n of a detector, else null"),
    Column("detected", INTS, "list; the tokens of its n-grams, n for each, most firings first"),
    Column("suppressed", REAL, "share of the tokens that a token detector detects"),
    Column("mutual_information", REAL, "of firing and position, nats"),
    Column("skew", REAL),
    Column("kurtosis", REAL, "3 for a normal distribution"),
    Column("frequency_correlation", REAL),
    Column("norm", REAL, "of the value as added to the residual"),
    Column("norm_percentile", REAL, "share of the layer's values that are lower"),
    Column("logit_variance", REAL, "of the value with norm 1"),
    Column("variance_percentile", REAL),
    Column("through_norm", REAL, "null without `effects.parquet`"),
)


def _answer(name: str, label: str, help: str) -> Measure:
    return Measure(name, label, "answer", f"types.{name}", help, shown=())


STAGE = Stage(
    name="types",
    help="Classify every memory by published definitions: dead, detectors of tokens and n-grams, positional …\n\n"
    "Definitions from Voita et al. (2023), Gurnee et al. (2024) and Stolfo et al. (2024). Run `ffscope effects` before it, if "
    "entropy memories are to be among them.",
    after=("effects", "patterns"),
    tables=(Table("types", "searched memory", _COLUMNS),),
    options=(TypeOptions, LensOptions),
    shards="ffscope.analysis.types:shards",
    source="types",
    measures=(
        Measure(
            "types",
            "Types",
            "text",
            "types.types",
            "The memory’s types by published definitions",
            width=12,
            shown=("layer", "search"),
        ),
        _answer("token_detector", "Token detector", "Fires on a few tokens, whenever they occur, and on little else"),
        _answer("suppresses_token", "Suppresses its tokens", "A token detector whose value suppresses these tokens"),
        _answer("ngram_detector", "N-gram detector", "Fires on a few bigrams or trigrams, but not on a few tokens"),
        _answer("positional_memory", "Positional", "Firing depends on the position"),
        _answer("promoter", "Promoter", "The value promotes a few tokens much more than the others"),
        _answer("suppressor", "Suppressor", "The value suppresses a few tokens much more than the others"),
        _answer("token_frequency", "Token frequency", "The value promotes tokens by their frequency, or their rarity"),
        _answer("entropy", "Entropy", "A large value that hardly changes the logits, except through the final norm"),
        Measure(
            "mutual_information",
            "Information on position",
            "real",
            "types.mutual_information",
            "Mutual information between firing and position",
            unit="nats",
            shown=(),
        ),
        Measure("kurtosis", "Kurtosis", "real", "types.kurtosis", "Kurtosis of the value’s logits", shown=()),
        Measure("skew", "Skew", "real", "types.skew", "Skew of the value’s logits", shown=()),
        Measure(
            "frequency_correlation",
            "Frequency correlation",
            "real",
            "types.frequency_correlation",
            "Correlation of the value’s logits with the log frequency of tokens",
            unit="-1 to 1",
            shown=(),
        ),
    ),
    figures=("ffscope.report.types:FIGURE", "ffscope.report.type_examples:FIGURE"),
    memory_panels=(
        Panel(
            "Types",
            "table",
            "ffscope.queries.types:types_panel",
            "What decides whether the memory is of each published type.",
        ),
    ),
    missing="The types of memories have not been determined yet.",
)
