"""Figure 2: the shares of triggers that have a pattern, for each annotator."""

from typing import Any

import numpy as np

from ffscope.annotating.annotator_agreement import BOTH, NOT_COVERED, labels
from ffscope.errors import StudyError
from ffscope.patterns.pattern import MACHINE
from ffscope.queries.annotations import Annotation, read
from ffscope.queries.series import labelled_prefixes, pattern_annotators
from ffscope.report import bootstrap
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Columns, Source
from ffscope.report.wording import by_depth, compare, ends, percent, trend
from ffscope.study.folder import Study
from ffscope.tokens import visible

_COVERAGE = ("shallow", BOTH, "semantic", NOT_COVERED)
_PAPER = {"covered": [(1, 16, 0.65, 0.80)]}
_PAPER_PATTERNS = 3.6  # of a memory


def _series(source: Source) -> Entry | None:
    """Computed for every study: people may have annotated a study without automatic patterns."""
    annotators = _by_annotator(source)
    if not annotators:
        return None
    first = next(iter(annotators.values()))  # the machine, if it has labelled
    encoder = source.study.manifest["stages"].get("patterns", {}).get("encoder")
    return {**first, "annotators": annotators, "encoder": encoder}


def _by_annotator(source: Source) -> dict[str, Entry]:
    """The shares of every annotator, the machine first, then language models, then people."""
    shares: dict[str, Entry] = {}
    if source.study.has("patterns"):
        for name in [MACHINE, *(name for name in pattern_annotators(source.tables) if name != MACHINE)]:
            shares[name] = _shares(labelled_prefixes(source.tables, name), source.generator)
    annotations = read(source.study)
    for name in sorted({annotation.annotator for annotation in annotations}):
        by_name = [annotation for annotation in annotations if annotation.annotator == name]
        shares[name] = _shares(_annotated_prefixes(by_name), source.generator)
    return shares


def with_annotator(study: Study, entry: Entry, annotator: str) -> Entry | None:
    """The machine's entry of the summary, together with one annotator's current one; None if there is neither."""
    shares = {name: entry for name, entry in entry.get("annotators", {}).items() if name == MACHINE}
    annotations = [annotation for annotation in read(study) if annotation.annotator == annotator]
    if annotations:
        shares[annotator] = _shares(_annotated_prefixes(annotations), np.random.default_rng(study.settings["seed"]))
    if not shares:
        return None
    return {"model_layers": study.manifest["model"]["layers"], **next(iter(shares.values())), "annotators": shares}


def select_annotators(summary: dict[str, Any], annotators: list[str] | None) -> dict[str, Any]:
    """A summary with the patterns of these annotators only; None: of all."""
    if annotators is None or "patterns" not in summary:
        return summary
    entry = summary["patterns"]
    missing = [name for name in annotators if name not in entry["annotators"]]
    if missing:
        raise StudyError(
            f"{missing[0]!r} has no patterns here. Annotators with patterns: {', '.join(entry['annotators'])}."
        )
    chosen = {name: entry["annotators"][name] for name in annotators}
    return {**summary, "patterns": {**entry, **next(iter(chosen.values())), "annotators": chosen}}


def _annotated_prefixes(annotations: list[Annotation]) -> Columns:
    """The columns of `labelled_prefixes` for one person's annotations."""
    rows = [
        (
            annotation.memory.layer,
            annotation.memory.memory,
            len(annotation.patterns),
            label in ("shallow", BOTH),
            label in ("semantic", BOTH),
        )
        for annotation in sorted(annotations, key=lambda annotation: annotation.memory)
        for label in labels(annotation.patterns, annotation.ranks).values()
    ]
    names = ("layer", "memory", "patterns", "shallow", "semantic")
    return {name: np.array(column) for name, column in zip(names, zip(*rows, strict=True), strict=False)}


def _shares(columns: Columns, generator: np.random.Generator) -> dict[str, Any]:
    """Figure 2 for one annotator. Whole memories are resampled, since the triggers of one memory are similar."""
    shallow, semantic = columns["shallow"].astype(bool), columns["semantic"].astype(bool)
    kinds = {"shallow": shallow & ~semantic, BOTH: shallow & semantic, "semantic": ~shallow & semantic}
    kinds[NOT_COVERED] = ~shallow & ~semantic
    layers = np.unique(columns["layer"])
    series = {}
    for name in _COVERAGE:
        means = [_mean(columns, kinds[name], columns["layer"] == layer, generator) for layer in layers]
        series[name] = {part: [share[part] for share in means] for part in ("value", "low", "high")}
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


def _chart(entry: Entry) -> Any:
    """One panel per annotator, all over the same layers: some people annotate only a few."""
    import altair as alt

    from ffscope.report import drawing

    colours = dict(zip(_COVERAGE, (drawing.BLUE, drawing.YELLOW, drawing.GREEN, drawing.PALE), strict=True))
    annotators = entry["annotators"]
    layers = sorted({layer for shares in annotators.values() for layer in shares["layer"]})
    panels = []
    for name, shares in annotators.items():
        panel_entry = {**entry, **shares, "axis_layers": layers}
        panel = drawing.stacked(panel_entry, colours, "share of triggers", "pattern", _PAPER)
        panels.append(panel.properties(title=visible(name)) if len(annotators) > 1 else panel)
    return panels[0] if len(panels) == 1 else alt.concat(*panels, columns=2)


def _sentence(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = ends(entry, "shallow")
    (_, low), (_, high) = ends(entry, "semantic")
    covered = entry["covered"]
    text = (
        f"Only a shallow pattern: {percent(bottom)} of the triggers in layer {first_at}, {percent(top)} in layer {last_at}. "
        f"Only a semantic pattern: {percent(low)} and {percent(high)}. In all layers together, {percent(covered['value'])} of "
        f"the triggers have a pattern (95 % interval {percent(covered['low'])} to {percent(covered['high'])}) and "
        f"{entry['uncovered_prefixes']:,} have none; a memory has {entry['patterns_per_memory']:.1f} patterns on average. In "
        f"the paper, experts labelled 160 keys: 65 to 80 % of the triggers have a pattern and a memory has {_PAPER_PATTERNS}; "
        "shallow patterns are the most frequent in layers 1 to 9 of 16, semantic ones become more frequent above."
    )
    names = list(entry["annotators"])
    return text + (f" Annotators, one panel each: {', '.join(map(visible, names))}." if len(names) > 1 else "")


def _findings(entry: Entry) -> list[Finding]:
    (first_layer, bottom), (last_layer, top) = ends(entry, "semantic")
    both = entry["series"][BOTH]["value"]
    lowest, highest = (first_layer, bottom + both[0]), (last_layer, top + both[-1])
    covered = entry["covered"]["value"]
    return [
        Finding(
            "Triggers with a semantic pattern",
            by_depth(lowest, highest),
            "few in layers 1 to 9 of 16, more above",
            trend(lowest, highest, expected="rises"),
        ),
        Finding("Triggers with a pattern of any kind", percent(covered), "65 to 80 %", compare(covered, 0.65, 0.80)),
    ]


FIGURE = Figure(
    name="patterns",
    number=2,
    title="Pattern coverage: triggers with a shallow or semantic pattern, both or none",
    series=_series,
    chart=_chart,
    how_to_read=(
        "One bar per layer. Its parts are the shares of triggers with a shallow pattern only, both kinds, a semantic"
        " pattern only, or none. The grey box is the share with any pattern in the paper."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={
        "shallow": "triggers with a shallow pattern only",
        BOTH: "triggers with both kinds of pattern",
        "semantic": "triggers with a semantic pattern only",
        NOT_COVERED: "triggers without a pattern",
    },
    paper=_PAPER,
)
