"""The clearest examples of each published type of memory."""

from ffscope.queries.types import type_examples
from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source

_EACH = 5


def _series(source: Source) -> Entry | None:
    examples = type_examples(source.tables, _EACH)
    if not examples:
        return None
    return {"types": [row["type"] for row in examples], "memories": [row["memory"] for row in examples]}


def _sentence(entry: Entry) -> str:
    return (
        f"The clearest examples of {len(set(entry['types']))} types, up to {_EACH} of each: {len(set(entry['memories']))} "
        "memories. The tokens are those that a detector detects, or that a value promotes or suppresses most."
    )


FIGURE = Figure(
    name="type_examples",
    title="Examples of each type of memory",
    stage="types",
    series=_series,
    sentence=_sentence,
    rows=lambda tables, _: type_examples(tables, _EACH),
)
