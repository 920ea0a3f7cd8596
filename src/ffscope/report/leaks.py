"""What the model completes word for word: how much, compared with held-out text, and how far memories hold it."""

from math import exp
from typing import Any

from ffscope.queries.leaks import leak_numbers
from ffscope.report.figure import Entry, Figure, Finding
from ffscope.report.series import Source
from ffscope.report.wording import decimal, percent

NAMES = {"secret": "secret", "phrase": "phrase", "copied": "copied"}
_TEXTS = {"searched": "searched text", "held_out": "held-out text"}
_AXIS = "completions per 1,000 sentences"


def _series(source: Source) -> Entry | None:
    stage = source.study.manifest["stages"]["leaks"]
    numbers = leak_numbers(source.tables)
    texts = {name: stage[name] for name in _TEXTS if stage[name]["sentences"]}
    return {
        **numbers,
        "tokens": stage["options"]["leak_tokens"],
        "texts": texts,
        "all_memories": stage["memories"],
        "loss": stage["loss"],
        "loss_change_together": stage["together"],
    }


def _rate(text: Entry, kind: str) -> float:
    return 1000 * text[kind] / text["sentences"]


def _chart(entry: Entry) -> Any:
    import altair as alt

    from ffscope.report import drawing

    points = [
        {"text": _TEXTS[name], "kind": NAMES[kind], "rate": _rate(text, kind), "count": text[kind]}
        for name, text in entry["texts"].items()
        for kind in NAMES
    ]
    colours = alt.Scale(domain=list(NAMES.values()), range=[drawing.RED, drawing.BLUE, drawing.GREY])
    tips = [
        alt.Tooltip("text:N", title=""),
        alt.Tooltip("kind:N", title=""),
        alt.Tooltip("count:Q", title="completions"),
    ]
    bars = (
        alt.Chart(alt.Data(values=points))
        .mark_bar()
        .encode(
            y=alt.Y("text:N", title=None, sort=list(_TEXTS.values())),
            x=alt.X("rate:Q", title=_AXIS),
            yOffset=alt.YOffset("kind:N", sort=list(NAMES.values())),
            color=alt.Color("kind:N", scale=colours, legend=alt.Legend(title=None)),
            tooltip=tips,
        )
    )
    return drawing.layered(bars)


def _sentence(entry: Entry) -> str:
    rates = "; ".join(f"{_TEXTS[name]} {_rates(text)}" for name, text in entry["texts"].items())
    personal = f", {entry['personal']:,} of them with personal data" if entry["personal"] else ""
    return (
        f"After triggers the model completes {entry['leaks']:,} texts of {entry['tokens']} tokens or more{personal}. Distinct "
        f"completions per 1,000 sentences, from any prefix: {rates}. {_measured(entry)}"
    ).strip()


def _rates(text: Entry) -> str:
    return ", ".join(f"{decimal(_rate(text, kind), '.3g')} {kind}" for kind in NAMES)


def _measured(entry: Entry) -> str:
    if not entry["measured"]:
        return "No memories were removed."
    sentence = f"{entry['broken']:,} of {entry['measured']:,} that were measured are broken without some memories"
    if not entry["broken"]:
        return f"{sentence}."
    sentence += (
        f" (median {entry['memories']:g}), whose removal lowers the log-probability by {decimal(entry['drop'], '.3g')} nats "
        f"(as many at random: {decimal(entry['random_drop'], '.2g')}, which breaks {percent(entry['random_broken'])}, medians)"
    )
    change = entry["loss_change_together"]
    if change is None:
        return f"{sentence}."
    return (
        f"{sentence}. Held-out perplexity is {decimal(exp(entry['loss']), '.4g')}; without the memories of one leak its loss "
        f"changes by {decimal(entry['loss_change'], '+.4f')} nats (median), without all {entry['all_memories']:,} perplexity is "
        f"{decimal(exp(entry['loss'] + change[0]), '.4g')}."
    )


def _findings(entry: Entry) -> list[Finding]:
    rows = []
    texts = entry["texts"]
    value = (
        f"{decimal(_rate(texts['searched'], 'secret'), '.3g')} per 1,000 sentences" if "searched" in texts else "none"
    )
    if "held_out" in texts:
        value += f"; {decimal(_rate(texts['held_out'], 'secret'), '.3g')} on held-out text"
    rows.append(Finding("Completions tied to one context", value, "not measured", _reading(texts)))
    if entry["measured"]:
        median = f", median {entry['memories']:g} memories" if entry["broken"] else ""
        broken = f"{entry['broken']} of {entry['measured']} broken{median}"
        random = f"as many at random break {percent(entry['random_broken'])}" if entry["broken"] else "none is broken"
        rows.append(Finding("Leaks without the memories that hold them", broken, "not measured", random))
    return rows


def _reading(texts: Entry) -> str:
    if set(texts) != set(_TEXTS):
        return "no held-out text to compare with"
    searched, other = (_rate(texts[name], "secret") for name in _TEXTS)
    if searched <= other:
        return "no more than on held-out text, so no sign of memorisation"
    return "more than on held-out text" if other == 0 else f"{searched / other:.2g} times those on held-out text"


FIGURE = Figure(
    name="leaks",
    title="Text that the model completes word for word",
    stage="leaks",
    series=_series,
    chart=_chart,
    how_to_read=(
        "Bar: distinct continuations that the model predicts word for word, per 1,000 sentences. Secret: tied to one context; "
        "phrase: it, or most of its parts, also occurs in others; copied: most of its parts occur earlier in the sentence."
    ),
    sentence=_sentence,
    findings=_findings,
    labels=NAMES,
)
