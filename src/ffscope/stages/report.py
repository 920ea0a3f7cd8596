"""The figures, report.html and summary.json, from what a study holds."""

from ffscope.options.report import ReportOptions
from ffscope.stages.stage import Stage

STAGE = Stage(
    name="report",
    help="Draw the figures and write report.html and summary.json from what a study holds. Needs no model.",
    after=("patterns", "labels"),
    options=(ReportOptions,),
    run="ffscope.report.page:run",
    model="none",
    in_run=False,  # a run ends with it, whatever else there is
    no_figure="It draws those of all other stages.",
    missing="The figures have not been drawn yet.",
)
