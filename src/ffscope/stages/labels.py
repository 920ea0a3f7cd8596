"""Patterns labelled by a language model; they are rows of patterns.parquet."""

from ffscope.options.labeller import LabellerOptions
from ffscope.stages.stage import Stage

STAGE = Stage(
    name="labels",
    help="Label patterns with a language model.",
    needs=("patterns",),
    options=(LabellerOptions,),
    run="ffscope.labelling.labeller:run",
    check="ffscope.labelling.labeller:check_options",
    model="none",
    command="patterns",
    wanted=lambda options: options(LabellerOptions).labeller is not None,
    in_run=False,
    no_figure="The figure of patterns shows every annotator, including language models.",
)
