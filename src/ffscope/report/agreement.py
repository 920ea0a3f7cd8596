"""Figure 4: how often a value's top token is the token after its key's top trigger."""

from typing import Any

from ffscope.queries.series import memory_counts
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import compare, interval, peak, percent

_LABEL = "memories that agree with their top trigger"
_PAPER = {
    "agreement": [
        (1, 10, 0.0, 0.005),
        (11, 11, 0.010, 0.010),
        (12, 12, 0.015, 0.015),
        (13, 13, 0.020, 0.020),
        (14, 14, 0.025, 0.025),
        (15, 15, 0.030, 0.030),
        (16, 16, 0.033, 0.035),
    ]
}


def _series(source: Source) -> Entry:
    columns = source.tables.columns("agreement", "layer", "agrees")
    layers, series = by_layer(columns, "agrees", source.share)
    counted = memory_counts(source.tables)
    dead = dict(zip(counted["layer"].tolist(), counted["dead"].tolist(), strict=True))
    return {
        "layer": layers,
        "series": {"agreement": series},
        "memories": [int((columns["layer"] == layer).sum()) for layer in layers],
        "dead": [int(dead[layer]) for layer in layers],
        "dead_in_all": int(counted["dead"].sum()),
        "overall": source.share(columns["agrees"]),
        "chance": 1 / source.model["vocab"],
    }


def _chart(entry: Entry) -> Any:
    from ffscope.report import drawing

    return drawing.share_bars(entry, "agreement", "share of memories", _PAPER, chance=entry["chance"])


def _sentence(entry: Entry) -> str:
    layer, best = peak(entry, "agreement")
    best_layer = (
        f" The best layer is {layer} with {percent(best)} (95 % interval {interval(entry, 'agreement', layer)})."
        if best
        else ""
    )
    return (
        f"{percent(entry['overall']['value'])} of {sum(entry['memories']):,} memories agree with their top trigger."
        f"{best_layer} A random token would agree in {percent(entry['chance'])}. {entry['dead_in_all']:,} memories never "
        "fired, so they have no trigger and are not counted. In the paper, agreement is close to 0 up to layer 10 of 16 and "
        "rises to 3.5 %; chance there is 0.0004 %."
    )


def _findings(entry: Entry) -> list[Finding]:
    layer, best = peak(entry, "agreement")
    chance = entry["chance"]
    above = entry["series"]["agreement"]["low"][entry["layer"].index(layer)] > chance
    return [
        Finding(
            "Agreement: value's top token = next token of the top trigger, best layer",
            f"{percent(best)} in layer {layer}, {best / chance:,.0f} × chance",
            "up to 3.5 %",
            f"{'above chance' if above else 'not clearly above chance'}; {compare(best, 0.035, 0.035)}",
        )
    ]


FIGURE = Figure(
    name="agreement",
    number=4,
    title="Agreement: value's top token = next token of the top trigger",
    stage="agreement",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Bar: share of the layer's memories that agree. Whisker: 95 % interval. Dashed line: a random token. "
        "Grey boxes: the paper."
    ),
    sentence=_sentence,
    findings=_findings,
    labels={"agreement": _LABEL},
    paper=_PAPER,
)
