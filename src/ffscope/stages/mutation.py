"""What a key looks at: the coefficient of a trigger without its first, its last or a random token."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Help, StudyOptions
from ffscope.stages.stage import INT, REAL, TEXT, Column, Panel, Stage, Table


@dataclass(frozen=True)
class MutationOptions(StudyOptions):
    """Which triggers are mutated."""

    mutation_memories: Annotated[
        int, Help("Memories of every layer whose triggers are mutated; 100 by default.", min=1)
    ] = 100
    mutation_triggers: Annotated[int, Help("Triggers of each that are mutated; 50 by default.", min=1)] = 50


STAGE = Stage(
    name="mutation",
    help="Remove the first, the last or a random token of triggers, and read their coefficients again.",
    after=("agreement",),
    tables=(
        Table(
            "mutation",
            "memory × trigger × removal",
            (
                Column("layer", INT),
                Column("memory", INT),
                Column("rank", INT),
                Column("removed", TEXT, "first, last, random"),
                Column("removed_index", INT),
                Column("coefficient", REAL),
                Column("mutated", REAL),
                Column("change", REAL, "(mutated - coefficient) / coefficient"),
            ),
        ),
    ),
    options=(MutationOptions,),
    run="ffscope.analysis.mutation:run",
    figures=("ffscope.report.mutation:FIGURE",),
    memory_panels=(
        Panel(
            "Mutation",
            "table",
            "ffscope.queries.mutation:mutation_panel",
            "How the coefficient changes when the trigger loses a token.",
        ),
    ),
    missing="Triggers have not been mutated yet.",
)
