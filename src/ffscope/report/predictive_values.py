"""Table 2: the values with the highest maximum probability, and how often their top token follows the triggers."""

import numpy as np

from ffscope.queries.values import predictive_values
from ffscope.report.figure import Entry, Figure
from ffscope.report.series import Source
from ffscope.report.wording import MEASURES, percent


def _series(source: Source) -> Entry:
    values = predictive_values(source.tables)
    agreeing = np.array([value.precision is not None and value.precision > 0 for value in values])
    return {
        "count": len(values),
        "with_agreeing_trigger": source.share(agreeing),
        "memories": [value.memory for value in values],
        "precision": [value.precision for value in values],
    }


def _sentence(entry: Entry) -> str:
    share = entry["with_agreeing_trigger"]
    return (
        f"{percent(share['value'])} of the {entry['count']:,} values with the highest maximum probability have at least one "
        f"trigger that is followed by the value's top token (95 % interval {percent(share['low'])} to "
        f"{percent(share['high'])}). In the paper it is 46 of 100. Precision is the share of a memory's triggers that are "
        "followed by that token."
    )


FIGURE = Figure(
    name="predictive_values",
    number=2,
    title="Values with the highest maximum probability",
    stage="agreement",
    series=_series,
    sentence=_sentence,
    rows=lambda tables, _: predictive_values(tables),
    template="predictive_values.html.j2",
    labels={"max_prob": MEASURES["max_prob"]},
)
