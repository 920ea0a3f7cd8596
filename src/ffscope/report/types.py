"""The share of memories of each published type, by layer."""

from typing import Any

import numpy as np

from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Series, Source, by_layer
from ffscope.report.wording import peak, percent
from ffscope.stages.types import TYPE_NAMES

_WIDTH, _HEIGHT, _COLUMNS = 210, 85, 3  # of a panel, and panels side by side
_LABELS = 12  # layers named on the axis of a panel
_SUPPRESSING = 0.8  # of token detectors, in Voita et al.


def _series(source: Source) -> Entry:
    columns = source.tables.columns("types", "layer", *TYPE_NAMES)
    series: dict[str, Series] = {}
    counts, unknown = {}, []
    layers = np.unique(columns["layer"]).tolist()
    for name in TYPE_NAMES:
        known = ~np.isnan(columns[name].astype(np.float64))
        if known.any():
            columns[name] = columns[name] == 1
            layers, series[name] = by_layer(columns, name, source.share)
            counts[name] = int(columns[name].sum())
        else:
            unknown.append(name)
    memories = [int((columns["layer"] == layer).sum()) for layer in layers]
    return {"layer": layers, "series": series, "memories": memories, "counts": counts, "unknown": unknown}


def _chart(entry: Entry) -> Any:
    """One panel per type that a memory has, over the same layers, each with its own scale."""
    import altair as alt

    names = [name for name, count in entry["counts"].items() if count] or list(entry["counts"])
    panels = [_panel(entry, name) for name in names]
    return alt.concat(*panels, columns=_COLUMNS, spacing=18)


def _panel(entry: Entry, name: str) -> Any:
    import altair as alt

    from ffscope.report import drawing

    highest = max(entry["series"][name]["high"])
    scale = alt.Scale(domain=[0, highest or 0.01], nice=True)
    axis = alt.Axis(format=".2~%", tickCount=4)
    x_axis = alt.Axis(values=entry["layer"][:: -(-len(entry["layer"]) // _LABELS)], format="d", grid=False)
    base = alt.Chart(drawing.rows(entry, name)).encode(x=drawing.layer_axis(entry).axis(x_axis))
    y = alt.Y("value:Q", title=None, axis=axis, scale=scale)
    layers = alt.layer(
        base.mark_area(opacity=0.2, color=drawing.BLUE).encode(y=alt.Y("low:Q", title=None), y2="high:Q"),
        base.mark_line(color=drawing.BLUE, strokeWidth=1.5).encode(y=y),
        base.mark_point(color=drawing.BLUE, filled=True, size=22, opacity=1).encode(
            y=y, tooltip=drawing.tooltip(TYPE_NAMES[name])
        ),
    )
    title = alt.Title(TYPE_NAMES[name], anchor="start", fontWeight="normal", fontSize=12)
    return layers.properties(width=_WIDTH, height=_HEIGHT, title=title)


def _sentence(entry: Entry) -> str:
    memories = sum(entry["memories"])
    parts = []
    for name, count in entry["counts"].items():
        if count:
            layer, share = peak(entry, name)
            parts.append(f"{TYPE_NAMES[name]} {count:,} (most in layer {layer}: {percent(share)})")
    without = [TYPE_NAMES[name] for name, count in entry["counts"].items() if not count]
    text = (
        f"Of {memories:,} memories: {'; '.join(parts)}." if parts else f"None of {memories:,} memories is of any type."
    )
    if parts and without:
        text += f" No memory is of these types: {', '.join(without)}."
    if entry["unknown"]:
        names = ", ".join(TYPE_NAMES[name] for name in entry["unknown"])
        text += f" Not determined in this study: {names}."
    return f"{text} A memory can be of several types."


def _findings(entry: Entry) -> list[Finding]:
    rows = [_dead(entry)]
    if entry["counts"].get("token_detector") and "suppresses_token" in entry["counts"]:
        rows.append(_suppressing(entry))
    if "promoter" in entry["series"]:
        rows.append(_promoters(entry))
    return rows


def _dead(entry: Entry) -> Finding:
    layer, share = peak(entry, "dead")
    half = (entry["model_layers"] - 1) / 2
    total = entry["counts"]["dead"]
    shares = zip(entry["layer"], entry["series"]["dead"]["value"], entry["memories"], strict=True)
    lower = sum(value * memories for at, value, memories in shares if at <= half)
    reading = "no memory is dead"
    if total:
        reading = f"{percent(lower / total)} of the dead memories are in the lower half of the layers"
    return Finding(
        "Dead memories, layer with the highest share",
        f"{percent(share)} in layer {layer}",
        "Voita et al. 2023: only in the lower half of the layers; over 70 % in some layers of OPT-66B",
        reading,
    )


def _suppressing(entry: Entry) -> Finding:
    detectors, suppressing = (entry["counts"][name] for name in ("token_detector", "suppresses_token"))
    share = suppressing / detectors
    return Finding(
        "Token detectors whose value suppresses the tokens they detect",
        f"{percent(share)} of {detectors:,}",
        "Voita et al. 2023: over 80 %",
        "as in that paper" if share > _SUPPRESSING else "fewer than in that paper",
    )


def _promoters(entry: Entry) -> Finding:
    promoters, suppressors = (entry["series"][name]["value"][-1] for name in ("promoter", "suppressor"))
    reading = "neither in the highest layer"
    if promoters or suppressors:
        more = suppressors > promoters
        reading = (
            f"{'more' if more else 'no more'} suppressors than promoters, {'as' if more else 'unlike'} in that paper"
        )
    return Finding(
        "Promoters and suppressors in the highest layer",
        f"{percent(promoters)} and {percent(suppressors)}",
        "Gurnee et al. 2024: promoters from the middle on, more suppressors in the last layers",
        reading,
    )


FIGURE = Figure(
    name="types",
    title="Memories of each published type",
    stage="types",
    series=_series,
    chart=_chart,
    how_to_read=(
        "One panel per type, each with its own scale: the share of the layer's searched memories that are of this type. Bands "
        "are 95 % intervals."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={
        name: f"memories that are {label}" if name == "dead" else f"type: {label}" for name, label in TYPE_NAMES.items()
    },
    terms={
        "token detector": "It fires whenever one of a few tokens occurs, and hardly otherwise (Voita et al. 2023).",
        "n-gram detector": "The same for a few bigrams or trigrams, where single tokens do not suffice.",
        "positional": "Whether it fires depends on the position in the sentence (Voita et al. 2023).",
        "promoter": "Its value promotes a few tokens much more than all others (Gurnee et al. 2024).",
        "suppressor": "Its value suppresses a few tokens much more than all others (Gurnee et al. 2024).",
        "token frequency": "Its value promotes tokens by their frequency, or their rarity (after Stolfo et al. 2024).",
        "entropy": "A large value that hardly changes the logits, except through the final norm (after Stolfo et al. 2024).",
    },
)
