"""The figure: by layer, the share of a memory's triggers that come from one document."""

from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source, by_layer
from ffscope.report.wording import peak, percent

LABEL = "share of triggers in one document"


def series(source: Source) -> Entry:
    """The median by layer, with its interval and quantiles."""
    layers, shares = by_layer(source.tables.columns("one_document", "layer", "share"), "share", source.spread)
    return {"layer": layers, "series": {"one_document": shares}}


def chart(entry: Entry) -> object:
    """One bar per layer."""
    from ffscope.report import drawing  # imports altair, which only drawing needs

    return drawing.share_bars(entry, "one_document", LABEL)


def sentence(entry: Entry) -> str:
    """The main result, in a sentence."""
    layer, share = peak(entry, "one_document")
    return (
        f"Half of layer {layer}'s memories, the most, have {percent(share)} of their triggers or more in one document."
    )


def findings(entry: Entry) -> list[Finding]:
    """Its row of the report's first table."""
    layer, share = peak(entry, "one_document")
    reading = (
        "half of the memories or more fire in one document" if share > 0.5 else "triggers come from several documents"
    )
    return [
        Finding("Triggers of a memory in one document, best layer", f"{percent(share)} in layer {layer}", "–", reading)
    ]


FIGURE = Figure(
    name="one_document",
    title="Triggers of a memory that come from one document",
    stage="documents",
    series=series,
    chart=chart,
    how_to_read="Bar: median over the layer's memories. Whisker: 95 % interval.",
    sentence=sentence,
    findings=findings,
    labels={"one_document": LABEL},
)
