"""What the figures show, in sentences: this model's numbers beside the paper's."""

from collections.abc import Callable
from typing import Any

from ffscope.report.paper import PAPER

Summary = dict[str, Any]
Entry = dict[str, Any]


def sentence(name: str, summary: Summary) -> str:
    """What one figure or table shows and how it compares with the paper."""
    return _SENTENCES[name](summary[name])


def telling(summary: Summary) -> list[str]:
    """The five most telling numbers of a study, or as many as it has."""
    return [say(summary[name]) for name, say in _TELLING.items() if name in summary]


def percent(share: float | None) -> str:
    """A share as people write it."""
    if share is None:
        return "–"
    hundredths = 100 * share
    form = ".0f" if abs(hundredths) >= 10 else ".1f" if abs(hundredths) >= 1 else ".2g"
    return f"{hundredths:{form}} %".replace("-", "−")


def _ends(entry: Entry, name: str) -> tuple[float, float]:
    """A series' value in the lowest and in the highest layer."""
    values = entry["series"][name]["value"]
    return values[0], values[-1]


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
    bottom, top = _ends(entry, "last")
    first, random = (_mean(entry["series"][name]["value"]) for name in ("first", "random"))
    way = "less" if top > bottom else "no less"
    both_ways = (
        ""
        if entry["causal"]
        else " This model looks both ways: a coefficient is read with the whole sentence in view and the mutated prefix is run "
        "alone, so that the change holds what was lost after the prefix too."
    )
    return (
        both_ways.lstrip()
        + (" " if both_ways else "")
        + (
            f"Removing the last token changes the coefficient by {percent(bottom)} in the lowest layer and by {percent(top)} in the "
            f"highest, so {way} in upper layers; removing the first changes it by {percent(first)} on average over the layers, a random one "
            f"by {percent(random)}. In the paper the last token costs 65 to 70 % in the lowest layer and about 20 % in the highest, the "
            f"first 10 to 15 %, a random one 15 to 20 %. {entry['forward_tokens']:,} tokens were run for this, where one run for each "
            f"mutation takes {entry['plain_tokens']:,}."
        )
    )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _agreement(entry: Entry) -> str:
    layer, best = _peak(entry, "agreement")
    dead = entry["dead_in_all"]
    return (
        f"{percent(entry['overall']['value'])} of {sum(entry['memories']):,} memories agree with their first trigger, and in layer "
        f"{layer}, where most do, {percent(best)} (95 % interval {_interval(entry, 'agreement', layer)}); a random token would in "
        f"{percent(entry['chance'])} (dashed). {dead:,} memories never fired and have no trigger to agree with. In the paper agreement is "
        "close to 0 up to layer 10 of 16 and rises to 3.5 %, where chance is 0.0004 %."
    )


def _next_rank(entry: Entry) -> str:
    layer, best = _peak(entry, "next_rank", min)
    bottom, top = _ends(entry, "next_rank")
    return (
        f"The token that follows a memory's first trigger has the median rank {bottom:,.0f} of {entry['vocabulary']:,} in the lowest "
        f"layer's values, {top:,.0f} in the highest's and at best {best:,.0f}, in layer {layer}. In the paper the median falls from 10,000 to "
        "15,000 of 270,000 in the lower layers to below 2,000 in the upper ones; the boxes are scaled to this vocabulary."
    )


def _agreement_by_probability(entry: Entry) -> str:
    lowest, highest = entry["bins"][0], entry["bins"][-1]
    if len(entry["bins"]) == 1:
        return f"Too few memories to part by maximum probability: {percent(lowest['value'])} of {lowest['memories']:,} agree."
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
    stop, short = exceptions["stop_word"], exceptions["short_prefix"]
    return (
        f"No memory predicts what its layer does in {percent(least)} of the examples or more (the least in layer {layer}; in the paper at "
        f"least about 68 %). In the {exceptions['count']:,} other cases the model's prediction is a stop word in {percent(stop['value'])} "
        f"(in {percent(stop['of_all'])} of all cases; paper: 60 %), and the prefix has fewer than 5 tokens in {percent(short['value'])} "
        f"(in {percent(short['of_all'])} of all; paper: 43 %). Stop words are {exceptions['stop_words']}."
    )


def _residual_agreement(entry: Entry) -> str:
    bottom, top = _ends(entry, "residual_agreement")
    half = _first_above(entry, "residual_agreement", 0.5)
    where = "in no layer" if half is None else f"from layer {half} on"
    return (
        f"The residual already has the model's final prediction in {percent(bottom)} of the examples before the lowest feed-forward layer "
        f"and in {percent(top)} before the highest; in more than half {where}. In the paper about a third are settled in the lower layers, "
        "and about 95 % before the last."
    )


def _first_above(entry: Entry, name: str, bound: float) -> int | None:
    """The lowest layer from which on a series stays above a bound."""
    found = None
    for layer, value in zip(entry["layer"], entry["series"][name]["value"], strict=True):
        found = (layer if found is None else found) if value > bound else None
    return found


def _residual_probability(entry: Entry) -> str:
    bottom, top = _ends(entry, "residual_prob")
    low, high = _ends(entry, "residual_rank")
    return (
        f"The median probability of the final prediction goes from {bottom:.2g} in the lowest layer's residual to {top:.2g} in the highest's, "
        f"its median rank goes from {low:,.0f} to {high:,.0f}. In the paper it is near 0 up to layer 7 of 16, and 0.6 to 0.8 from layer 14 on."
    )


def _cases(entry: Entry) -> str:
    largest = [
        max(entry["series"], key=lambda case: entry["series"][case]["value"][i]) for i in range(len(entry["layer"]))
    ]
    smallest = [
        min(entry["series"], key=lambda case: entry["series"][case]["value"][i]) for i in range(len(entry["layer"]))
    ]
    shares = {case: _mean(series["value"]) for case, series in entry["series"].items()}
    told = ", ".join(f"{case} {percent(share)}" for case, share in shares.items())
    return (
        f"On average over the layers: {told}. The residual's prediction stands alone as the largest case in {largest.count('residual')} of "
        f"{len(largest)} layers; ffn is the smallest in {smallest.count('ffn')}. In the paper residual is the largest everywhere, about 60 to "
        "85 %, and ffn the smallest."
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


_SENTENCES: dict[str, Callable[[Entry], str]] = {
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
    bottom, top = _ends(entry, "last")
    first = _mean(entry["series"]["first"]["value"])
    return (
        f"without its last token a trigger's coefficient changes by {percent(bottom)} in the lowest layer and {percent(top)} in the highest; "
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
    bottom, top = _ends(entry, "residual_agreement")
    return (
        f"the residual has the final prediction in {percent(bottom)} of the examples before the lowest layer, in {percent(top)} before the "
        "highest (paper: near 0, 95 %)"
    )


def _tell_cases(entry: Entry) -> str:
    residual, ffn = (_mean(entry["series"][case]["value"]) for case in ("residual", "ffn"))
    return f"the residual alone decides {percent(residual)} of the outputs, the feed-forward layer alone {percent(ffn)} (paper: 60 to 85 %, few)"


_TELLING: dict[str, Callable[[Entry], str]] = {
    "mutation": _tell_mutation,
    "agreement": _tell_agreement,
    "zero_agreement": _tell_zero,
    "residual_agreement": _tell_residual,
    "cases": _tell_cases,
}
