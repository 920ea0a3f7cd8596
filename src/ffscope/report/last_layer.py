"""Composition cases of the last layer, and whether residual and output predict related tokens there."""

from ffscope.queries.last_layer import last_layer_changes
from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source
from ffscope.report.wording import percent

_PAPER_RELATED = 0.34  # of the cases, judged by people


def _series(source: Source) -> Entry:
    related = source.tables.columns("last_layer", "related")["related"]
    return {
        "cases": len(related),
        "related": source.share(related),
        "related_above": source.study.manifest["stages"]["refinement"]["related_above"],
        "chance": 0.05,
    }


def _sentence(entry: Entry) -> str:
    if not entry["cases"]:
        return "None of the examples is a composition case in the last layer."
    return (
        f"In {percent(entry['related']['value'])} of {entry['cases']:,} sampled composition cases of the last layer, the "
        "tokens of residual and output are related: the cosine of their unembedding rows is above "
        f"{entry['related_above']:.2f}, as for 5 % of random pairs. In the paper, people judged {percent(_PAPER_RELATED)} of "
        "100 such cases related."
    )


FIGURE = Figure(
    name="last_layer",
    title="Composition cases in the last layer",
    stage="refinement",
    series=_series,
    sentence=_sentence,
    rows=lambda tables, _: last_layer_changes(tables),
    template="last_layer.html.j2",
)
