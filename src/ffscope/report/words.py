"""What the figures show, in sentences: this model's numbers beside the paper's."""

from collections.abc import Callable
from typing import Any

from ffscope.report.paper import PAPER
from ffscope.tokens import visible

Summary = dict[str, Any]
Entry = dict[str, Any]

# Of the figures, in the paper's order.
TITLES = {
    "patterns": "What covers the prefixes that trigger memories",
    "mutation": "Change in coefficient when a token of the trigger is removed",
    "agreement": "Memories whose value ranks the first trigger's next token highest",
    "next_rank": "Rank of the first trigger's next token in the value",
    "agreement_by_probability": "Agreement by the value's maximum probability",
    "active": "Active memories of an example",
    "zero_agreement": "Examples where no memory predicts what the layer does",
    "residual_agreement": "Examples where the residual already has the final prediction",
    "residual_probability": "Probability of the final prediction, read from the residual",
    "cases": "Whose prediction the layer's output is",
}


def sentence(name: str, summary: Summary) -> str:
    """What one figure or table shows and how it compares with the paper."""
    return _SENTENCES[name](summary[name])


def telling(summary: Summary) -> list[str]:
    """The most telling numbers of a study, or as many as it has."""
    return [say(summary[name]) for name, say in _TELLING.items() if name in summary]


def percent(share: float | None) -> str:
    """A share as people write it."""
    if share is None:
        return "–"
    hundredths = 100 * share or 0.0
    form = ".0f" if abs(hundredths) >= 10 else ".1f" if abs(hundredths) >= 1 else ".2g"
    return f"{hundredths:{form}} %".replace("-", "−")


def _at_the_ends(entry: Entry, name: str) -> tuple[tuple[int, float], tuple[int, float]]:
    """The lowest and the highest layer that a series has, with its values there."""
    values = entry["series"][name]["value"]
    return (entry["layer"][0], values[0]), (entry["layer"][-1], values[-1])


def _peak(entry: Entry, name: str, best: Callable[..., float] = max) -> tuple[int, float]:
    """The layer where a series is highest (or lowest), and its value there."""
    values = entry["series"][name]["value"]
    at = values.index(best(values))
    return entry["layer"][at], values[at]


def _interval(entry: Entry, name: str, layer: int) -> str:
    at = entry["layer"].index(layer)
    low, high = (entry["series"][name][end][at] for end in ("low", "high"))
    return f"{percent(low)} to {percent(high)}"


def _mutation(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = _at_the_ends(entry, "last")
    first, random = (_mean(entry["series"][name]["value"]) for name in ("first", "random"))
    way = (
        ""
        if first_at == last_at
        else ", so less in upper layers"
        if abs(top) < abs(bottom)
        else ", so no less in upper layers"
    )
    return (
        f"Removing the last token changes the coefficient by {percent(bottom)} in layer {first_at} and by {percent(top)} in layer {last_at}{way}; "
        f"removing the first changes it by {percent(first)} on average over the layers, a random one "
        f"by {percent(random)}. In the paper the last token costs 65 to 70 % in the lowest layer and about 20 % in the highest, the "
        f"first 10 to 15 %, a random one 15 to 20 %. {entry['forward_tokens']:,} tokens were run for this, where one run for each "
        f"mutation takes {entry['plain_tokens']:,}."
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _agreement(entry: Entry) -> str:
    layer, best = _peak(entry, "agreement")
    most = (
        f", and in layer {layer}, where most do, {percent(best)} (95 % interval {_interval(entry, 'agreement', layer)})"
        if best
        else ""
    )
    return (
        f"{percent(entry['overall']['value'])} of {sum(entry['memories']):,} memories agree with their first trigger{most}; a random token would in "
        f"{percent(entry['chance'])} (dashed). {entry['dead_in_all']:,} memories never fired and have no trigger to agree with. In the paper "
        "agreement is close to 0 up to layer 10 of 16 and rises to 3.5 %, where chance is 0.0004 %."
    )


def _next_rank(entry: Entry) -> str:
    layer, best = _peak(entry, "next_rank", min)
    (first_at, bottom), (last_at, top) = _at_the_ends(entry, "next_rank")
    return (
        f"The token that follows a memory's first trigger has the median rank {bottom:,.0f} of {entry['vocabulary']:,} in layer {first_at}'s "
        f"values, {top:,.0f} in layer {last_at}'s and at best {best:,.0f}, in layer {layer}. In the paper the median falls from 10,000 to "
        "15,000 of 270,000 in the lower layers to below 2,000 in the upper ones; the boxes are scaled to this vocabulary."
    )


def _agreement_by_probability(entry: Entry) -> str:
    lowest, highest = entry["bins"][0], entry["bins"][-1]
    if len(entry["bins"]) == 1:
        return (
            "The memories are too few, or their maximum probabilities too alike, to be parted by them: "
            f"{percent(lowest['value'])} of {lowest['memories']:,} agree."
        )
    return (
        f"Of the {lowest['memories']:,} least confident values {percent(lowest['value'])} agree, of the {highest['memories']:,} most "
        f"confident {percent(highest['value'])} (95 % interval {percent(highest['low'])} to {percent(highest['high'])}). The number over a "
        "bar counts its memories; bins of fewer than 50 are joined with their neighbours. In the paper agreement rises from near 0 to about "
        "95 % in the highest of eight bins."
    )


def _active(entry: Entry) -> str:
    (low_at, low), (high_at, high) = _peak(entry, "active", min), _peak(entry, "active")
    said = (
        f"The median example has {percent(low)} of the memories active in layer {low_at}, the fewest, and {percent(high)} in layer "
        f"{high_at}, the most. In the paper it is 10 to 50 %, fewest in layer 10 of 16."
    )
    return said + _effective(entry) if any(entry["signed"]) else said


def _effective(entry: Entry) -> str:
    (low_at, low), (high_at, high) = _peak(entry, "effective", min), _peak(entry, "effective")
    return (
        " This model's coefficients may be negative, or are never exactly 0, so that “active” says little: a negative coefficient acts too, "
        "and a tiny one hardly at all. The effective number of memories is how many carry 90 % of Σ|m|·‖v‖ (diamonds): "
        f"{low:,.0f} at the median example in layer {low_at}, the fewest, and {high:,.0f} of {entry['memories'][entry['layer'].index(high_at)]:,} "
        f"in layer {high_at}, the most."
    )


def _zero_agreement(entry: Entry) -> str:
    layer, least = _peak(entry, "zero_agreement", min)
    exceptions = entry["exceptions"]
    if not exceptions["count"]:
        return "In no example does a memory predict what its layer does. In the paper none does in at least about 68 %."
    stop, short = exceptions["stop_word"], exceptions["short_prefix"]
    return (
        f"No memory predicts what its layer does in {percent(least)} of the examples or more (the least in layer {layer}; in the paper at "
        f"least about 68 %). In the {exceptions['count']:,} other cases the model's prediction is a stop word in {percent(stop['value'])} "
        f"(in {percent(stop['of_all'])} of all cases; paper: 60 %), and the prefix has fewer than 5 tokens in {percent(short['value'])} "
        f"(in {percent(short['of_all'])} of all; paper: 43 %). Stop words are {exceptions['stop_words']}."
    )


def _residual_agreement(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = _at_the_ends(entry, "residual_agreement")
    half = _first_above(entry, "residual_agreement", 0.5)
    where = "in no layer" if half is None else f"from layer {half} on"
    return (
        f"The residual already has the model's final prediction in {percent(bottom)} of the examples before feed-forward layer {first_at} "
        f"and in {percent(top)} before layer {last_at}; in more than half {where}. In the paper about a third are settled in the lower layers, "
        "and about 95 % before the last."
    )


def _first_above(entry: Entry, name: str, bound: float) -> int | None:
    """The lowest layer from which on a series stays above a bound."""
    found = None
    for layer, value in zip(entry["layer"], entry["series"][name]["value"], strict=True):
        found = (layer if found is None else found) if value > bound else None
    return found


def _residual_probability(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = _at_the_ends(entry, "residual_prob")
    (_, low), (_, high) = _at_the_ends(entry, "residual_rank")
    return (
        f"The median probability of the final prediction goes from {bottom:.2g} in layer {first_at}'s residual to {top:.2g} in layer {last_at}'s, "
        f"its median rank goes from {low:,.0f} to {high:,.0f}. In the paper it is near 0 up to layer 7 of 16, and 0.6 to 0.8 from layer 14 on."
    )


def _cases(entry: Entry) -> str:
    shares = [[series["value"][i] for series in entry["series"].values()] for i in range(len(entry["layer"]))]
    residual, ffn = (entry["series"][case]["value"] for case in ("residual", "ffn"))
    largest = sum(one == max(layer) for one, layer in zip(residual, shares, strict=True))
    smallest = sum(one == min(layer) for one, layer in zip(ffn, shares, strict=True))
    told = ", ".join(f"{case} {percent(_mean(series['value']))}" for case, series in entry["series"].items())
    return (
        f"On average over the layers: {told}. The residual's prediction stands alone as the largest case in {largest} of {len(shares)} layers; "
        f"ffn is the smallest in {smallest}. In the paper residual is the largest everywhere, about 60 to 85 %, and ffn the smallest."
    )


def _predictive_values(entry: Entry) -> str:
    share = entry["with_agreeing_trigger"]
    return (
        f"Of the {entry['count']:,} values with the highest maximum probability {percent(share['value'])} have at least one trigger that is "
        f"followed by their top token (95 % interval {percent(share['low'])} to {percent(share['high'])}); in the paper 46 of 100."
    )


def _last_layer(entry: Entry) -> str:
    if not entry["cases"]:
        return "The last layer has no composition case among the examples."
    return (
        f"Of {entry['cases']:,} sampled composition cases of the last layer, {percent(entry['related']['value'])} go to a related token: one whose "
        f"unembedding row has a cosine above {entry['related_above']:.2f} with the residual's token's, which 5 % of random pairs have. People "
        f"who judged 100 such cases for the paper called {percent(PAPER['last_layer']['related'])} related. Read them below."
    )


def _patterns(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = _at_the_ends(entry, "shallow")
    (_, low), (_, high) = _at_the_ends(entry, "semantic")
    covered = entry["covered"]
    said = (
        f"Prefixes with a shallow pattern alone go from {percent(bottom)} in layer {first_at} to {percent(top)} in layer {last_at}, with a semantic one alone "
        f"from {percent(low)} to {percent(high)}. {percent(covered['value'])} of the prefixes are covered (95 % interval {percent(covered['low'])} to "
        f"{percent(covered['high'])}; paper: 65 to 80 %), {entry['uncovered_prefixes']:,} are not, and a memory has {entry['patterns_per_memory']:.1f} patterns (paper: "
        f"{PAPER['patterns_per_memory']}). In the paper, where experts labelled 160 keys, shallow patterns prevail in layers 1 to 9 of 16 and semantic ones grow above."
    )
    names = list(entry["annotators"])
    return said + (f" Side by side: {', '.join(map(visible, names))}." if len(names) > 1 else "")


def _pattern_examples(entry: Entry) -> str:
    return f"{entry['count']:,} memories, one of every layer, by lot: their patterns, and three of the prefixes that the first covers."


_SENTENCES: dict[str, Callable[[Entry], str]] = {
    "patterns": _patterns,
    "pattern_examples": _pattern_examples,
    "mutation": _mutation,
    "agreement": _agreement,
    "next_rank": _next_rank,
    "agreement_by_probability": _agreement_by_probability,
    "active": _active,
    "zero_agreement": _zero_agreement,
    "residual_agreement": _residual_agreement,
    "residual_probability": _residual_probability,
    "cases": _cases,
    "predictive_values": _predictive_values,
    "last_layer": _last_layer,
}


def _tell_mutation(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = _at_the_ends(entry, "last")
    first = _mean(entry["series"]["first"]["value"])
    return (
        f"without its last token a trigger's coefficient changes by {percent(bottom)} in layer {first_at} and {percent(top)} in layer {last_at}; "
        f"without its first by {percent(first)} (paper: −70 to −65 %, −20 %; −15 to −10 %)"
    )


def _tell_agreement(entry: Entry) -> str:
    layer, best = _peak(entry, "agreement")
    return (
        f"{percent(best)} of layer {layer}'s values rank highest what follows their first trigger, {best / entry['chance']:,.0f} times chance "
        "(paper: 3.5 %)"
    )


def _tell_zero(entry: Entry) -> str:
    layer, least = _peak(entry, "zero_agreement", min)
    return f"no single memory predicts what its layer does in at least {percent(least)} of the examples (layer {layer}; paper: 68 %)"


def _tell_residual(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = _at_the_ends(entry, "residual_agreement")
    return (
        f"the residual has the final prediction in {percent(bottom)} of the examples before layer {first_at}, in {percent(top)} before layer "
        f"{last_at} (paper: near 0, 95 %)"
    )


def _tell_cases(entry: Entry) -> str:
    residual, ffn = (_mean(entry["series"][case]["value"]) for case in ("residual", "ffn"))
    return f"the residual alone decides {percent(residual)} of the outputs, the feed-forward layer alone {percent(ffn)} (paper: 60 to 85 %, few)"


def _tell_patterns(entry: Entry) -> str:
    (first_at, bottom), (last_at, top) = _at_the_ends(entry, "semantic")
    both = entry["series"]["both"]["value"]
    return (
        f"a semantic pattern covers {percent(bottom + both[0])} of the prefixes in layer {first_at} and {percent(top + both[-1])} in layer {last_at}; "
        f"{percent(entry['covered']['value'])} have any (paper: few, more above layer 9; 65 to 80 %)"
    )


_TELLING: dict[str, Callable[[Entry], str]] = {
    "patterns": _tell_patterns,
    "mutation": _tell_mutation,
    "agreement": _tell_agreement,
    "zero_agreement": _tell_zero,
    "residual_agreement": _tell_residual,
    "cases": _tell_cases,
}
