"""Figure 8: how often no single memory has the top token of its layer's update, and what the exceptions have in common."""

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

_LABEL = "examples where no memory has the update's top token"
_SHORT = 5  # a prefix with fewer tokens is short
_FREQUENT = 100  # tokens of a corpus taken as stop words in a language without a list
_PAPER = {"zero_agreement": [(1, 4, 0.68, 0.80), (5, 9, 0.85, 0.90), (10, 16, 0.68, 0.80)]}
# Kinds of exceptions: description, share in the paper.
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
    """The share of a kind among the cases with an agreeing memory, and among all cases."""
    exception = columns["none"] == 0
    shares = [source.share(kind[exception & (columns["layer"] == layer)]) for layer in np.unique(columns["layer"])]
    layers = {name: [share[name] for share in shares] for name in shares[0]}
    # An example's prediction and position are the same in all its layers, so whole examples are resampled.
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

    return drawing.share_bars(entry, "zero_agreement", "share of examples", _PAPER)


def _sentence(entry: Entry) -> str:
    layer, least = peak(entry, "zero_agreement", min)
    exceptions = entry["exceptions"]
    if not exceptions["count"]:
        return "No memory has the update's top token in any example. In the paper it is at least about 68 % of the examples."
    stop, short = exceptions["stop_word"], exceptions["short_prefix"]
    return (
        f"No single memory has the update's top token in at least {percent(least)} of the examples (layer {layer} has the "
        f"lowest share). In the paper it is at least about 68 %. In the {exceptions['count']:,} other cases, the model's "
        f"prediction is a stop word in {percent(stop['value'])} ({percent(stop['of_all'])} of all cases; paper: 60 %), and "
        f"the prefix has fewer than {_SHORT} tokens in {percent(short['value'])} ({percent(short['of_all'])} of all cases; "
        f"paper: 43 %). Stop words: {exceptions['stop_words']}."
    )


def _findings(entry: Entry) -> list[Finding]:
    layer, least = peak(entry, "zero_agreement", min)
    return [
        Finding(
            "Examples where no single memory has the update's top token, minimum over layers",
            f"{percent(least)} in layer {layer}",
            "68 %",
            compare(least, 0.68, 0.68),
        )
    ]


@dataclass(frozen=True)
class Exceptions:
    """A kind of exception: its share of the exceptions, of all cases, and of the exceptions in the paper."""

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
    title="Examples where no memory has the top token of the layer's update",
    stage="composition",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Bar: share of examples where no memory of the layer has the top token of the layer's update. Whisker: 95 % interval. "
        "Grey boxes: the paper."
    ),
    sentence=_sentence,
    findings=_findings,
    rows=_rows,
    template="exceptions.html.j2",
    labels={"zero_agreement": _LABEL},
    paper=_PAPER,
)
