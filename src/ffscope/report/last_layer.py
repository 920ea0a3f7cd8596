"""What the last layer changes: its composition cases, and whether residual and output predict related tokens there."""

from ffscope.queries.last_layer import last_layer_changes
from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source
from ffscope.report.wording import percent

_PAPER_RELATED = 0.34  # of the cases, as people judged them


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
        return "The last layer has no composition case among the examples."
    return (
        f"Of {entry['cases']:,} sampled composition cases of the last layer, {percent(entry['related']['value'])} go to a "
        f"related token: one whose unembedding row has a cosine above {entry['related_above']:.2f} with the residual's "
        "token's, which 5 % of random pairs have. People who judged 100 such cases for the paper called "
        f"{percent(_PAPER_RELATED)} related. Read them below."
    )


FIGURE = Figure(
    name="last_layer",
    title="What the last layer changes",
    stage="refinement",
    series=_series,
    sentence=_sentence,
    rows=lambda tables, _: last_layer_changes(tables),
    template="last_layer.html.j2",
)
