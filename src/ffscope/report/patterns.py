"""Figure 2 and table 1 in numbers: what the prefixes of memories share, by whoever says so."""

from typing import Any

import numpy as np

from ffscope.annotating.annotator_agreement import BOTH, NOT_COVERED, labels
from ffscope.patterns.pattern import MACHINE
from ffscope.queries.annotations import Annotation, read
from ffscope.report import bootstrap
from ffscope.study.folder import Study

LABELS = ("shallow", BOTH, "semantic", NOT_COVERED)
Columns = dict[str, np.ndarray]


def by_annotator(study: Study, database: Any, generator: np.random.Generator) -> dict[str, dict[str, Any]]:
    """The shares of every annotator, the machine first, then language models, then people."""
    made: dict[str, dict[str, Any]] = {}
    programs = _programs(study, database) if study.has("patterns") else []
    for name in programs:
        made[name] = _shares(_labelled(study, database, name), generator)
    annotations = read(study)
    for name in sorted({one.annotator for one in annotations}):
        made[name] = _shares(_written([one for one in annotations if one.annotator == name]), generator)
    return made


def beside(study: Study, entry: dict[str, Any], annotator: str) -> dict[str, Any] | None:
    """An entry of the summary as it is of the machine, and beside it what a person has written by now; None: neither has looked."""
    made = {name: shares for name, shares in entry.get("annotators", {}).items() if name == MACHINE}
    mine = [one for one in read(study) if one.annotator == annotator]
    if mine:
        made[annotator] = _shares(_written(mine), np.random.default_rng(study.settings["seed"]))
    if not made:
        return None
    layers = study.manifest["model"]["layers"]
    return {"figure": 2, "model_layers": layers, **next(iter(made.values())), "annotators": made}


def _programs(study: Study, database: Any) -> list[str]:
    rows = database.execute("SELECT DISTINCT annotator FROM patterns").fetchall()
    return [MACHINE, *sorted({name for (name,) in rows} - {MACHINE})]


def _labelled(study: Study, database: Any, annotator: str) -> Columns:
    """Every prefix that a program looked at, with its memory, how many patterns that has, and the kinds that cover the prefix."""
    stages = study.manifest["stages"]
    labels = stages.get("labels", {})
    in_vain = labels.get("without_pattern", []) if labels.get("annotator") == annotator else []
    query = """
        WITH mine AS (SELECT * FROM patterns WHERE annotator = $name),
        looked AS (
            SELECT DISTINCT layer, memory FROM triggers
            WHERE $name = 'machine' OR (layer, memory) IN (SELECT (layer, memory) FROM mine)
                OR list_contains($in_vain, 'L' || layer || '.' || memory)
        ),
        counted AS (SELECT layer, memory, count(*) AS patterns FROM mine GROUP BY ALL),
        covered AS (
            SELECT layer, memory, unnest(covers) AS rank, kind FROM mine
        ),
        kinds AS (
            SELECT layer, memory, rank, bool_or(kind = 'shallow') AS shallow, bool_or(kind = 'semantic') AS semantic
            FROM covered GROUP BY ALL
        )
        SELECT layer, memory, coalesce(patterns, 0) AS patterns, coalesce(shallow, false) AS shallow,
            coalesce(semantic, false) AS semantic
        FROM triggers SEMI JOIN looked USING (layer, memory) LEFT JOIN counted USING (layer, memory)
            LEFT JOIN kinds USING (layer, memory, rank)
        WHERE rank <= $triggers ORDER BY layer, memory, rank
    """
    asked = {"name": annotator, "in_vain": in_vain, "triggers": stages["patterns"]["pattern_triggers"]}
    found = database.execute(query, asked).fetchnumpy()
    return {name: np.asarray(column) for name, column in found.items()}


def _written(annotations: list[Annotation]) -> Columns:
    """The same, as one person wrote it."""
    rows = [
        (
            one.memory.layer,
            one.memory.memory,
            len(one.patterns),
            label in ("shallow", BOTH),
            label in ("semantic", BOTH),
        )
        for one in sorted(annotations, key=lambda one: one.memory)
        for label in labels(one.patterns, one.ranks).values()
    ]
    names = ("layer", "memory", "patterns", "shallow", "semantic")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=False)}


def _shares(columns: Columns, generator: np.random.Generator) -> dict[str, Any]:
    """Figure 2 of one annotator; memories are drawn whole, since the prefixes of one are alike."""
    shallow, semantic = columns["shallow"].astype(bool), columns["semantic"].astype(bool)
    kinds = {"shallow": shallow & ~semantic, BOTH: shallow & semantic, "semantic": ~shallow & semantic}
    kinds[NOT_COVERED] = ~shallow & ~semantic
    layers = np.unique(columns["layer"])
    series = {}
    for name in LABELS:
        three = [_mean(columns, kinds[name], columns["layer"] == layer, generator) for layer in layers]
        series[name] = {part: [one[part] for one in three] for part in ("value", "low", "high")}
    every = np.ones(len(shallow), dtype=bool)
    _, first = np.unique(np.stack([columns["layer"], columns["memory"]]), axis=1, return_index=True)
    return {
        "layer": layers.tolist(),
        "series": series,
        "memories": [int((columns["layer"][first] == layer).sum()) for layer in layers],
        "covered": _mean(columns, ~kinds[NOT_COVERED], every, generator),
        "uncovered_prefixes": int(kinds[NOT_COVERED].sum()),
        "patterns_per_memory": float(columns["patterns"][first].mean()),
        "memories_without": int((columns["patterns"][first] == 0).sum()),
    }


def _mean(columns: Columns, hit: np.ndarray, here: np.ndarray, generator: np.random.Generator) -> dict[str, float]:
    _, number = np.unique(np.stack([columns["layer"][here], columns["memory"][here]]), axis=1, return_inverse=True)
    sums, counts = np.bincount(number, hit[here]), np.bincount(number)
    low, high = bootstrap.mean_of_clusters(sums, counts, generator)
    return {"value": float(hit[here].mean()), "low": low, "high": high}  # type: ignore[dict-item]
