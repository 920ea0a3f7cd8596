"""Learned lenses: translators trained for this model and text, and its mean Jacobians, compared with the other lenses."""

from dataclasses import dataclass
from typing import Annotated

from ffscope.options.fields import Help, StudyOptions
from ffscope.stages.stage import INT, REAL, TEXT, Column, Stage, Table


@dataclass(frozen=True)
class LensTrainingOptions(StudyOptions):
    """How long translators are trained, and over how much text Jacobians are averaged."""

    lens_steps: Annotated[
        int, Help("Steps of the training of the tuned lens at most; 250 by default, 0 for none.", min=0)
    ] = 250
    lens_tokens: Annotated[int, Help("Tokens per step; 512 by default. On a GPU, 8192 is better and fast.", min=1)] = (
        512
    )
    lens_patience: Annotated[
        int,
        Help(
            "Stop after so many validations without an improvement of any translator, out of ten in the whole training; 3 by "
            "default.",
            min=1,
        ),
    ] = 3
    lens_validation: Annotated[
        int,
        Help(
            "Tokens of the text that are left out of the training and say when to stop, at most a tenth of it; 2048 by default.",
            min=1,
        ),
    ] = 2048
    jacobian_sentences: Annotated[
        int, Help("Sentences of the examples over which the Jacobians are averaged; 100 by default, 0 for none.", min=0)
    ] = 100
    lens_examples: Annotated[
        int, Help("Held-out prefixes at which the lenses are compared; 1000 by default.", min=1)
    ] = 1000


_LENSES = Table(
    "lenses",
    "lens × layer that leads to the logits",
    (
        Column("lens", TEXT),
        Column("layer", INT),
        Column("examples", INT),
        Column("divergence", REAL, "mean KL(model ‖ residual’s reading) over the examples, nats"),
        Column("divergence_low", REAL, "of the 95 % interval"),
        Column("divergence_high", REAL),
        Column("output_divergence", REAL, "the same of the output’s reading"),
        Column(
            "residual_agreement", REAL, "share of the examples where the residual’s top token is the model’s prediction"
        ),
        Column(
            "agreement", REAL, "share of memories whose value’s top token follows the top trigger; null before a search"
        ),
        Column("next_rank", REAL, "median rank in the value of the token after the top trigger"),
        Column("memories", INT, "with a trigger and a token after it"),
        Column("distance", REAL, "of the residual’s matrix from the identity, relative; null for norm and raw"),
    ),
)
STAGE = Stage(
    name="lens",
    help="Learn lenses of a model: `tuned`, translators trained for this model, and `jacobian`, its mean Jacobians.\n\n"
    "Both are saved with the study, where --lens tuned and --lens jacobian read them, and compared with the lenses norm and "
    "raw. Without --corpus, the study's own text is used. If it is interrupted, run the same command to resume.",
    needs=("sentences",),
    after=("triggers", "refinement"),
    tables=(_LENSES,),
    options=(LensTrainingOptions,),
    run="ffscope.analysis.lens:run",
    command="",  # its command may also read a corpus
    in_run=False,
    figures=("ffscope.report.lenses:FIGURE",),
)
