"""Which tokens a key depends on: the coefficient of a trigger without its first, last or a random token."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Help, StudyOptions
from ffscope.stages.stage import INT, REAL, TEXT, Column, Panel, Stage, Table


@dataclass(frozen=True)
class MutationOptions(StudyOptions):
    """How many triggers are mutated."""

    mutation_memories: Annotated[
        int, Help("Number of memories per layer whose triggers are mutated; 100 by default.", min=1)
    ] = 100
    mutation_triggers: Annotated[int, Help("Number of triggers per memory to mutate; 50 by default.", min=1)] = 50


STAGE = Stage(
    name="mutation",
    help="Remove the first, last or a random token of triggers, and measure how their coefficients change.",
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
    shards="ffscope.analysis.mutation:shards",
    figures=("ffscope.report.mutation:FIGURE",),
    memory_panels=(
        Panel(
            "Mutation",
            "table",
            "ffscope.queries.mutation:mutation_panel",
            "Change of the coefficient when a token is removed from the trigger.",
        ),
    ),
    missing="The triggers have not been mutated yet.",
)
