"""The types of memories: those of one memory with what decides on them, and the clearest examples of each type."""

from collections.abc import Iterable, Iterator
from typing import Any

from ffscope.memory_name import Memory
from ffscope.queries.tables import Tables, Where, reading, spellings
from ffscope.stages.types import TYPE_NAMES, TypeOptions

Row = dict[str, Any]
_SHOWN = 5  # tokens of a value
# For each type that has a quantity: the quantity, by which its examples are sorted, and which tokens are shown with it.
_EXAMPLES = {
    "token_detector": ("firings", "detected"),
    "suppresses_token": ("suppressed", "detected"),
    "ngram_detector": ("firings", "detected"),
    "positional_memory": ("mutual_information", ""),
    "promoter": ("kurtosis", "top_tokens"),
    "suppressor": ("kurtosis", "bottom_tokens"),
    "token_frequency": ("frequency_correlation", "top_tokens"),
    "entropy": ("through_norm", ""),
}
_QUANTITIES = {
    "firings": "firings",
    "suppressed": "of its tokens are suppressed",
    "mutual_information": "nats of information on the position",
    "kurtosis": "kurtosis of the logits",
    "frequency_correlation": "correlation with log frequency",
    "through_norm": "of its effect runs through the final norm",
}


def types_panel(where: Where, memory: Memory) -> dict[str, Any] | None:
    """Every type as the table of a panel: what decides on it, the memory's value, the threshold and the answer."""
    with reading(where) as tables:
        if not tables.study.has("types"):
            return None
        row = tables.row("SELECT * FROM types WHERE layer = ? AND memory = ?", memory)
        if row is None:
            return None
        settings = tables.study.settings
        options = TypeOptions(**{name: settings[name] for name in vars(TypeOptions()) if name in settings})
        tokens = spellings(tables, row["detected"] or [])
    answers = {True: "yes", False: "no", None: "unknown"}
    rows = [
        [TYPE_NAMES[name], criterion, value, threshold, answers[row[name]]]
        for name, criteria in _criteria(row, options).items()
        for criterion, value, threshold in criteria
    ]
    panel = {
        "heads": ["Type", "Quantity", "Value", "Threshold", "Answer"],
        "kinds": ["text"] * 5,
        "rows": rows,
    }
    if row["detected"]:
        detected = [[_spelt(ngram, tokens)] for ngram in _ngrams(row)]
        panel["more"] = {"title": "What it detects", "heads": ["Tokens"], "kinds": ["text"], "rows": detected}
    return panel


def _criteria(row: Row, options: TypeOptions) -> dict[str, list[tuple[str, str, str]]]:
    """For each type, its quantities, and the values and thresholds as text."""
    cover = f"that cover {options.type_coverage:g} of its {row['firings']:,} firings"
    few = f"≤ {options.type_ngrams}"
    most = f"> {options.type_kurtosis:g}"
    return {
        "dead": [("firings on any searched prefix", "none" if row["dead"] else "some", "none")],
        "token_detector": [(f"tokens {cover}", _number(row["unigrams"]), few)],
        "suppresses_token": [("share of these tokens that its value suppresses", _number(row["suppressed"]), "> 0.5")],
        "ngram_detector": [(f"{name} {cover}", _number(row[name]), few) for name in ("bigrams", "trigrams")],
        "positional_memory": [
            ("information on position, nats", _number(row["mutual_information"]), f"> {options.type_information:g}")
        ],
        "promoter": [("kurtosis of the value’s logits, if their skew is above 0", _moments(row), most)],
        "suppressor": [("kurtosis of the value’s logits, if their skew is below 0", _moments(row), most)],
        "token_frequency": [
            (
                "correlation of the value’s logits with log frequency",
                _number(row["frequency_correlation"]),
                f"≥ {options.type_correlation:g} or ≤ −{options.type_correlation:g}",
            )
        ],
        "entropy": [
            (
                "share of the layer’s values with a lower norm",
                _number(row["norm_percentile"]),
                f"≥ {options.type_norm:g}",
            ),
            (
                "share of the layer’s values with a lower logit variance",
                _number(row["variance_percentile"]),
                f"≤ {options.type_variance:g}",
            ),
            (
                "share of its effect through the final norm",
                _number(row["through_norm"]),
                f"≥ {options.type_through_norm:g}",
            ),
        ],
    }


def _moments(row: Row) -> str:
    return f"{_number(row['kurtosis'])} (skew {_number(row['skew'])})"


def _number(number: float | None) -> str:
    if number is None:
        return "–"
    if number % 1 == 0 or abs(number) >= 1000:
        return f"{number:,.0f}"
    return f"{number:.3g}".replace("-", "−")


def _quantity(name: str, number: float) -> str:
    """A quantity in the table of examples: shares in percent."""
    return f"{100 * number:.0f} %" if name in ("suppressed", "through_norm") else _number(number)


def type_examples(tables: Tables, count: int) -> list[dict[str, str]]:
    """The clearest examples of each type: its quantity, and the tokens that the memory detects, promotes or suppresses."""
    by_type = {name: _examples(tables, name, *_EXAMPLES[name], count) for name in _EXAMPLES}
    tokens = {token for rows in by_type.values() for row in rows for token in row["tokens"] or ()}
    spelt = spellings(tables, tokens)
    return [
        {
            "type": TYPE_NAMES[name],
            "memory": str(Memory(row["layer"], row["memory"])),
            "quantity": f"{_quantity(_EXAMPLES[name][0], row['quantity'])} {_QUANTITIES[_EXAMPLES[name][0]]}",
            "tokens": " | ".join(_spelt(ngram, spelt) for ngram in _shown(row)) or "–",
        }
        for name, rows in by_type.items()
        for row in rows
    ]


def _examples(tables: Tables, name: str, quantity: str, tokens: str, count: int) -> list[Row]:
    """The memories of a type, in descending order of its quantity."""
    of_value = tokens in ("top_tokens", "bottom_tokens")
    if of_value and not tables.has("values"):
        tokens, of_value = "", False
    joined = "LEFT JOIN values v USING (layer, memory)" if of_value else ""
    column = f"v.{tokens}" if of_value else f"t.{tokens}" if tokens else "NULL"
    rows = tables.rows(
        f"""
        SELECT t.layer, t.memory, t.{quantity}, t.ngram, {column} FROM types t {joined}
        WHERE t.{name} ORDER BY abs(t.{quantity}) DESC, t.firings DESC, t.layer, t.memory LIMIT ?
        """,
        [count],
    )
    names = ("layer", "memory", "quantity", "ngram", "tokens")
    return [{**dict(zip(names, row, strict=True)), "of_value": of_value} for row in rows]


def _shown(row: Row) -> Iterable[list[int]]:
    if row["of_value"]:
        return [[token] for token in (row["tokens"] or [])[:_SHOWN]]
    return _ngrams({"ngram": row["ngram"], "detected": row["tokens"]})


def _ngrams(row: Row) -> Iterator[list[int]]:
    """The n-grams that a memory detects."""
    tokens = row["detected"] or []
    for start in range(0, len(tokens), row["ngram"] or 1):
        yield tokens[start : start + row["ngram"]]


def _spelt(ngram: list[int], spelt: dict[int, str]) -> str:
    return " ".join(spelt.get(token, f"#{token}") for token in ngram)
