"""Table 1: patterns of some memories, with triggers that they cover."""

from ffscope.queries.patterns import pattern_examples
from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source


def _series(source: Source) -> Entry:
    examples = pattern_examples(source.tables)
    return {
        "count": len(examples),
        "memories": [example.memory for example in examples],
        "patterns": [[pattern.description for pattern in example.patterns] for example in examples],
    }


def _sentence(entry: Entry) -> str:
    return (
        f"{entry['count']:,} memories, one drawn at random from every layer, with their patterns and three of the triggers "
        "that the first pattern covers."
    )


FIGURE = Figure(
    name="pattern_examples",
    number=1,
    title="Pattern examples, one memory per layer",
    stage="patterns",
    series=_series,
    sentence=_sentence,
    rows=lambda tables, _: pattern_examples(tables),
    template="pattern_examples.html.j2",
)
