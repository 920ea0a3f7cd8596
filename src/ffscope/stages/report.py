"""The figures, report.html and summary.json of a study."""

from ffscope.options.report import ReportOptions
from ffscope.stages.stage import Stage

STAGE = Stage(
    name="report",
    help="Draw the figures and write report.html and summary.json from the results of a study. Needs no model.",
    after=("patterns", "labels"),
    options=(ReportOptions,),
    run="ffscope.report.page:run",
    model="none",
    in_run=False,  # run separately, at the end of a run
    no_figure="It draws the figures of all other stages.",
    missing="The figures have not been drawn yet.",
)
