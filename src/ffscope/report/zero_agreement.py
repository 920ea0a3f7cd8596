"""Figure 8: how often no memory alone predicts what its layer does; and what is special about the exceptions."""

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from ffscope.queries.series import frequent_tokens, zero_matches
from ffscope.queries.tables import Tables
from ffscope.report import bootstrap
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Array, Columns, Source, by_layer
from ffscope.report.wording import compare, peak, percent

_LABEL = "examples where no memory agrees with the layer"
_SHORT = 5  # tokens that a short prefix has fewer of
_FREQUENT = 100  # tokens of a corpus that stand for stop words where there is no list of them
_PAPER = {"zero_agreement": [(1, 4, 0.68, 0.80), (5, 9, 0.85, 0.90), (10, 16, 0.68, 0.80)]}
# Kinds of exceptions: what is said of one, and its share in the paper.
_KINDS = {
    "stop_word": ("the prediction is a stop word", 0.60),
    "short_prefix": (f"the prefix has fewer than {_SHORT} tokens", 0.43),
}


def _series(source: Source) -> Entry | None:
    columns = zero_matches(source.tables)
    if not len(columns["layer"]):
        return None
    layers, series = by_layer(columns, "none", source.share)
    stop_words, which = _stop_words(source)
    columns["stop_word"] = np.isin(columns["prediction"], stop_words)
    columns["short_prefix"] = columns["position"] + 1 < _SHORT
    exceptions = {name: _exceptions(source, columns, columns[name]) for name in _KINDS}
    return {
        "layer": layers,
        "series": {"zero_agreement": series},
        "exceptions": {"count": int((columns["none"] == 0).sum()), "stop_words": which, **exceptions},
    }


def _exceptions(source: Source, columns: Columns, kind: Array) -> dict[str, Any]:
    """How many of the cases with an agreeing memory are of a kind, beside how many of all cases are."""
    exception = columns["none"] == 0
    shares = [source.share(kind[exception & (columns["layer"] == layer)]) for layer in np.unique(columns["layer"])]
    layers = {name: [share[name] for share in shares] for name in shares[0]}
    # An example's prediction and position are the same in all its layers, so whole examples are drawn.
    counts = np.bincount(columns["example"], exception)
    low, high = bootstrap.mean_of_clusters(np.bincount(columns["example"], exception & kind), counts, source.generator)
    value = float(kind[exception].mean()) if exception.any() else None
    return {"value": value, "low": low, "high": high, "of_all": float(kind.mean()), "by_layer": layers}


def _stop_words(source: Source) -> tuple[list[int], str]:
    """The tokens that are stop words, and how they were found."""
    if source.study.settings["language"] != "en":
        tokens = frequent_tokens(source.tables, _FREQUENT)
        return tokens, f"the {_FREQUENT} most frequent tokens of the text"
    words = set(files("ffscope.report").joinpath("stop_words.txt").read_text(encoding="utf-8").split())
    vocabulary = source.tables.columns("vocabulary", "token", "text")
    spelt = zip(vocabulary["token"].tolist(), vocabulary["text"], strict=True)
    return [token for token, text in spelt if text.strip("␣").casefold() in words], "a list of English words"


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    return drawing.share_bars(entry, "zero_agreement", _LABEL, _PAPER)


def _sentence(entry: Entry) -> str:
    layer, least = peak(entry, "zero_agreement", min)
    exceptions = entry["exceptions"]
    if not exceptions["count"]:
        return "In no example does a memory predict what its layer does. In the paper none does in at least about 68 %."
    stop, short = exceptions["stop_word"], exceptions["short_prefix"]
    return (
        f"No memory predicts what its layer does in {percent(least)} of the examples or more (the least in layer {layer}; "
        f"in the paper at least about 68 %). In the {exceptions['count']:,} other cases the model's prediction is a stop "
        f"word in {percent(stop['value'])} (in {percent(stop['of_all'])} of all cases; paper: 60 %), and the prefix has "
        f"fewer than 5 tokens in {percent(short['value'])} (in {percent(short['of_all'])} of all; paper: 43 %). "
        f"Stop words are {exceptions['stop_words']}."
    )


def _findings(entry: Entry) -> list[Finding]:
    layer, least = peak(entry, "zero_agreement", min)
    return [
        Finding(
            "Examples where no single memory has the layer's top token, layer with the fewest",
            f"{percent(least)} in layer {layer}",
            "68 %",
            compare(least, 0.68, 0.68),
        )
    ]


@dataclass(frozen=True)
class Exceptions:
    """A kind of cases where a single memory does agree with its layer: its share of them, of all cases, and in the paper."""

    description: str
    value: float | None
    low: float | None
    high: float | None
    of_all: float
    paper: float


def _rows(_: Tables, entry: Entry) -> list[Exceptions]:
    parts = ("value", "low", "high", "of_all")
    return [
        Exceptions(description=text, paper=stated, **{part: entry["exceptions"][kind][part] for part in parts})
        for kind, (text, stated) in _KINDS.items()
    ]


FIGURE = Figure(
    name="zero_agreement",
    number=8,
    title="Examples where no memory predicts what the layer does",
    stage="composition",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Bar: share of examples where no memory of the layer has the layer's top token. Whisker: 95 % interval. "
        "Grey boxes: the paper."
    ),
    sentence=_sentence,
    findings=_findings,
    rows=_rows,
    template="exceptions.html.j2",
    labels={"zero_agreement": _LABEL},
    paper=_PAPER,
)
