"""The series behind every figure, with their intervals, from the study's tables alone."""

import json
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np

from ffscope.cases import CASES
from ffscope.queries.patterns import pattern_examples
from ffscope.queries.tables import Tables, reading
from ffscope.queries.values import predictive_values
from ffscope.report import bootstrap
from ffscope.report.patterns import by_annotator
from ffscope.study.folder import Study

Array = np.ndarray
Columns = dict[str, Array]
Measure = dict[str, float | None]
Series = dict[str, list[float | None]]

_QUANTILES = {"q05": 0.05, "q25": 0.25, "q75": 0.75, "q95": 0.95}
_BINS, _ENOUGH = 12, 50  # of figure 6: bins to begin with, and memories that each must hold in the end
_SHORT = 5  # tokens that a short prefix has fewer of
_FREQUENT = 100  # tokens of a corpus that stand for stop words where there is no list of them


def summarise(study: Study) -> dict[str, Any]:
    """Everything that the finished stages of a study show, keyed by the figure's or the table's name."""
    made: dict[str, Any] = {}
    with reading(study) as database:
        for stage, makers in _MAKERS.items():
            seen = study.has(stage) and database.execute(f"SELECT count(*) FROM {stage}").fetchone()[0]
            for name, maker in makers.items() if seen else ():
                found = maker(_Asked(study, database, name))
                if found is not None:
                    made[name] = {**found, "model_layers": study.manifest["model"]["layers"]}
        found = _patterns(_Asked(study, database, "patterns"))  # people may have looked where the machine has not
        if found is not None:
            made["patterns"] = {**found, "model_layers": study.manifest["model"]["layers"]}
    return made


class _Asked:
    """A study's tables, and the random numbers that belong to one entry of the summary."""

    def __init__(self, study: Study, database: Tables, name: str) -> None:
        self.study, self.database = study, database
        self.generator = np.random.default_rng([study.settings["seed"], *name.encode()])

    def columns(self, query: str) -> Columns:
        """What a query finds, as arrays."""
        return {name: np.asarray(column) for name, column in self.database.execute(query).fetchnumpy().items()}

    def share(self, hits: Any) -> tuple[float | None, float | None, float | None]:
        """A share of yes-or-no rows, and its interval; of no rows there is none."""
        if not len(hits):
            return (None,) * 3
        return float(np.mean(hits)), *bootstrap.share(int(np.sum(hits)), len(hits), self.generator)


def _by_layer(columns: Columns, column: str, measure: Callable[[Array], Measure]) -> tuple[list[int], Series]:
    """One measure of a column in every layer."""
    layers = np.unique(columns["layer"])
    found = [measure(columns[column][columns["layer"] == layer]) for layer in layers]
    return layers.tolist(), {name: [one[name] for one in found] for name in found[0]}


def _named(asked: _Asked, values: Array) -> Measure:
    return dict(zip(("value", "low", "high"), asked.share(values), strict=True))


def _spread(asked: _Asked, values: Array) -> Measure:
    """A median with its interval, and the quantiles around it."""
    values = values[~np.isnan(values.astype(np.float64))]
    low, high = bootstrap.median(values, asked.generator)
    quantiles = {name: float(np.quantile(values, at)) for name, at in _QUANTILES.items()}
    return {"value": float(np.median(values)), "low": low, "high": high, **quantiles}


def _mutation(asked: _Asked) -> dict[str, Any]:
    columns = asked.columns(
        "SELECT layer, removed, memory, sum(change::DOUBLE) AS total, count(*) AS rows FROM mutation "
        "WHERE isfinite(change) GROUP BY ALL ORDER BY ALL"
    )
    layers = np.unique(columns["layer"])
    series: dict[str, Series] = {}
    for removed in ("first", "last", "random"):
        series[removed] = {"value": [], "low": [], "high": []}
        for layer in layers:
            here = (columns["layer"] == layer) & (columns["removed"] == removed)
            sums, counts = columns["total"][here], columns["rows"][here].astype(np.int64)
            three = (sums.sum() / counts.sum(), *bootstrap.mean_of_clusters(sums, counts, asked.generator))
            for name, number in zip(series[removed], three, strict=True):
                series[removed][name].append(float(number))
    stage = asked.study.manifest["stages"]["mutation"]
    counts = {name: stage[name] for name in ("forward_tokens", "plain_tokens")}
    memories = [len(np.unique(columns["memory"][columns["layer"] == layer])) for layer in layers]
    return {"figure": 3, "layer": layers.tolist(), "series": series, "memories": memories, **counts}


def _agreement(asked: _Asked) -> dict[str, Any]:
    columns = asked.columns("SELECT layer, agrees::INT AS agrees FROM agreement")
    layers, series = _by_layer(columns, "agrees", partial(_named, asked))
    counted = asked.columns(
        "SELECT layer, count(*) AS n, sum((maximum > 0)::INT) AS alive FROM memories GROUP BY 1 ORDER BY 1"
    )
    return {
        "figure": 4,
        "layer": layers,
        "series": {"agreement": series},
        "memories": [int((columns["layer"] == layer).sum()) for layer in layers],
        "dead": _dead(layers, counted),
        "dead_in_all": int((counted["n"] - counted["alive"]).sum()),
        "overall": _named(asked, columns["agrees"]),
        "chance": 1 / asked.study.manifest["model"]["vocab"],
    }


def _dead(layers: list[int], counted: Columns) -> list[int]:
    dead = dict(zip(counted["layer"].tolist(), (counted["n"] - counted["alive"]).tolist(), strict=True))
    return [int(dead[layer]) for layer in layers]


def _next_rank(asked: _Asked) -> dict[str, Any] | None:
    columns = asked.columns("SELECT layer, next_rank FROM agreement WHERE next_rank IS NOT NULL")
    if not len(columns["layer"]):
        return None
    layers, series = _by_layer(columns, "next_rank", partial(_spread, asked))
    return {
        "figure": 5,
        "layer": layers,
        "series": {"next_rank": series},
        "vocabulary": asked.study.manifest["model"]["vocab"],
    }


def _agreement_by_probability(asked: _Asked) -> dict[str, Any]:
    columns = asked.columns("SELECT max_prob::DOUBLE AS max_prob, agrees::INT AS agrees FROM agreement")
    found = []
    edges = bin_edges(columns["max_prob"])
    for low, high in pairwise(edges):
        inside = (columns["max_prob"] >= low) & ((columns["max_prob"] < high) | (high == edges[-1]))
        found.append(
            {"from": low, "to": high, "memories": int(inside.sum()), **_named(asked, columns["agrees"][inside])}
        )
    return {"figure": 6, "bins": found, "chance": 1 / asked.study.manifest["model"]["vocab"]}


def bin_edges(values: Array) -> list[float]:
    """Edges of bins of equal width on a logarithmic scale, joined with their neighbours until each holds enough."""
    edges = np.geomspace(values.min(), values.max(), _BINS + 1)
    edges[0], edges[-1] = values.min(), values.max()
    kept, held = [float(edges[0])], 0
    for count, edge in zip(np.histogram(values, edges)[0] if edges[-1] > edges[0] else (), edges[1:], strict=False):
        held += int(count)
        if held >= _ENOUGH:
            kept.append(float(edge))
            held = 0
    if len(kept) == 1:
        return [kept[0], float(edges[-1])]
    return [*kept[:-1], float(edges[-1])]  # what is left over joins the last


def _active(asked: _Asked) -> dict[str, Any]:
    columns = asked.columns("SELECT layer, active_fraction, effective FROM composition")
    layers, active = _by_layer(columns, "active_fraction", partial(_spread, asked))
    _, effective = _by_layer(columns, "effective", partial(_spread, asked))
    below, zero = (_signs(asked, layers, bins) for bins in ("1:22", "23:23"))
    memories = asked.study.manifest["model"]["memories"]
    return {
        "figure": 7,
        "layer": layers,
        "series": {"active": active, "effective": effective},
        "memories": [memories[layer] for layer in layers],
        "negative_share": below,
        "zero_share": zero,
        "signed": [None if some is None else some > 0 or none == 0 for some, none in zip(below, zero, strict=True)],
    }


def _signs(asked: _Asked, layers: list[int], bins: str) -> list[float | None]:
    """The share of coefficients in some bins of the histograms, by layer: below 0, or 0. None where none was searched."""
    counted = asked.columns(
        f"SELECT layer, sum(list_sum(histogram[{bins}]))::DOUBLE / sum(seen) AS share FROM memories GROUP BY 1"
    )
    share = dict(zip(counted["layer"].tolist(), counted["share"].tolist(), strict=True))
    return [share.get(layer) for layer in layers]


def _zero_agreement(asked: _Asked) -> dict[str, Any] | None:
    columns = asked.columns(
        "SELECT example, layer, (matches = 0)::INT AS none, position, prediction FROM composition JOIN examples USING (example) "
        "WHERE matches IS NOT NULL ORDER BY layer, example"
    )
    if not len(columns["layer"]):
        return None
    layers, series = _by_layer(columns, "none", partial(_named, asked))
    stop_words, how = _stop_words(asked)
    columns["stop_word"] = np.isin(columns["prediction"], stop_words)
    columns["short_prefix"] = columns["position"] + 1 < _SHORT
    exceptions = {name: _exceptions(asked, columns, columns[name]) for name in ("stop_word", "short_prefix")}
    return {
        "figure": 8,
        "layer": layers,
        "series": {"zero_agreement": series},
        "exceptions": {"count": int((columns["none"] == 0).sum()), "stop_words": how, **exceptions},
    }


def _exceptions(asked: _Asked, columns: Columns, kind: Array) -> dict[str, Any]:
    """How many of the cases with an agreeing memory are of a kind, beside how many of all cases are."""
    exception = columns["none"] == 0
    layers = [_named(asked, kind[exception & (columns["layer"] == layer)]) for layer in np.unique(columns["layer"])]
    by_layer = {name: [one[name] for one in layers] for name in layers[0]}
    # An example's prediction and position are the same in all its layers, so whole examples are drawn.
    counts = np.bincount(columns["example"], exception)
    low, high = bootstrap.mean_of_clusters(np.bincount(columns["example"], exception & kind), counts, asked.generator)
    value = float(kind[exception].mean()) if exception.any() else None
    return {"value": value, "low": low, "high": high, "of_all": float(kind.mean()), "by_layer": by_layer}


def _stop_words(asked: _Asked) -> tuple[list[int], str]:
    """The tokens that are stop words, and how they were found."""
    if asked.study.settings["language"] == "en":
        words = files("ffscope.report").joinpath("stop_words.txt").read_text(encoding="utf-8").split()
        rows = asked.database.execute("SELECT token, text FROM vocabulary").fetchall()
        return [token for token, text in rows if text.strip("␣").casefold() in set(words)], "a list of English words"
    rows = asked.database.execute(
        f"SELECT token FROM (SELECT unnest(tokens) AS token FROM sentences) GROUP BY 1 ORDER BY count(*) DESC, 1 LIMIT {_FREQUENT}"
    ).fetchall()
    return [token for (token,) in rows], f"the {_FREQUENT} most frequent tokens of the text"


def _residual_agreement(asked: _Asked) -> dict[str, Any]:
    columns = asked.columns(
        "SELECT layer, (residual_top = prediction)::INT AS same FROM refinement JOIN examples USING (example)"
    )
    layers, series = _by_layer(columns, "same", partial(_named, asked))
    return {"figure": 9, "layer": layers, "series": {"residual_agreement": series}}


def _residual_probability(asked: _Asked) -> dict[str, Any]:
    columns = asked.columns("SELECT layer, residual_prob, residual_rank FROM refinement")
    layers, probability = _by_layer(columns, "residual_prob", partial(_spread, asked))
    _, rank = _by_layer(columns, "residual_rank", partial(_spread, asked))
    return {"figure": 10, "layer": layers, "series": {"residual_prob": probability, "residual_rank": rank}}


def _cases(asked: _Asked) -> dict[str, Any]:
    columns = asked.columns('SELECT layer, "case" FROM refinement')
    series = {}
    for case in CASES:
        columns[case] = columns["case"] == case
        layers, series[case] = _by_layer(columns, case, partial(_named, asked))
    return {"figure": 11, "layer": layers, "series": series}


def _predictive_values(asked: _Asked) -> dict[str, Any]:
    rows = predictive_values(asked.study.folder)
    agreeing = np.array([row.precision is not None and row.precision > 0 for row in rows])
    return {
        "table": 2,
        "count": len(rows),
        "with_agreeing_trigger": _named(asked, agreeing),
        "memories": [row.memory for row in rows],
        "precision": [row.precision for row in rows],
    }


def _last_layer(asked: _Asked) -> dict[str, Any]:
    columns = asked.columns("SELECT related::INT AS related FROM last_layer")
    stage = asked.study.manifest["stages"]["refinement"]
    return {
        "cases": len(columns["related"]),
        "related": _named(asked, columns["related"]),
        "related_above": stage["related_above"],
        "chance": 0.05,
    }


def _patterns(asked: _Asked) -> dict[str, Any] | None:
    annotators = by_annotator(asked.study, asked.database, asked.generator)
    if not annotators:
        return None
    first = next(iter(annotators.values()))  # the machine, where it has looked
    encoder = asked.study.manifest["stages"].get("patterns", {}).get("encoder")
    return {"figure": 2, **first, "annotators": annotators, "encoder": encoder}


def _pattern_examples(asked: _Asked) -> dict[str, Any]:
    rows = pattern_examples(asked.study.folder)
    return {
        "table": 1,
        "count": len(rows),
        "memories": [row.memory for row in rows],
        "patterns": [[pattern.description for pattern in row.patterns] for row in rows],
    }


_MAKERS: dict[str, dict[str, Callable[[_Asked], dict[str, Any] | None]]] = {
    "mutation": {"mutation": _mutation},
    "agreement": {
        "agreement": _agreement,
        "next_rank": _next_rank,
        "agreement_by_probability": _agreement_by_probability,
        "predictive_values": _predictive_values,
    },
    "composition": {"active": _active, "zero_agreement": _zero_agreement},
    "refinement": {
        "residual_agreement": _residual_agreement,
        "residual_probability": _residual_probability,
        "cases": _cases,
        "last_layer": _last_layer,
    },
    "patterns": {"pattern_examples": _pattern_examples},
}


def write_summary(study: Study) -> dict[str, Any]:
    """Leave summary.json in the study, and give what it holds."""
    made = summarise(study)
    with study.replacing("summary.json") as path:
        path.write_text(json.dumps(made, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return made
