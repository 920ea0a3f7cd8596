"""The page of one memory."""

import secrets
from bisect import bisect_right
from dataclasses import dataclass, replace

from ffscope.memory_name import Memory
from ffscope.queries.memory import MemoryPage, Value, memory_page
from ffscope.queries.mutation import Mutation, mutation_of
from ffscope.queries.patterns import Found
from ffscope.queries.similar import Similar, similar
from ffscope.queries.tables import Tables
from ffscope.web.twins.missing import Missing, missing
from ffscope.web.twins.rows import Row, folded, shown

_QUANTILES = (0.9, 0.7, 0.5, 0.3, 0.1)


@dataclass(frozen=True)
class MemoryTwin:
    """Everything about one memory. Examples are its triggers, prefixes near quantiles of its coefficients, and a random sample."""

    memory: str
    gist: str
    layer: int
    number: int
    model: str
    dtype: str
    lens: str | None
    seen: int
    fired: int
    mean: float
    maximum: float
    histogram: list[int]
    histogram_edges: list[float]
    value: Value | None
    patterns: list[Found] | None
    triggers: list[Row]
    quantiles: list[Row]
    sample: list[Row]
    negative: list[Row]
    mutation: Mutation | None
    similar: Similar
    previous: str | None
    next: str | None
    random: str
    missing: list[Missing]


def memory_twin(tables: Tables, memory: Memory) -> MemoryTwin:
    """What a study knows of a memory."""
    study = tables.study
    page = memory_page(tables, str(memory))
    top = page.value.token if page.value else None
    edges = study.settings["histogram_edges"]
    sample = [replace(shown(one, top), quantile=_quantile(page, edges, one.coefficient)) for one in page.sample]
    taken = ("memory", "gist", "model", "dtype", "seen", "fired", "mean", "maximum", "histogram", "value", "patterns")
    before, after, random = _neighbours(tables, memory)
    return MemoryTwin(
        **{name: getattr(page, name) for name in taken},
        layer=memory.layer,
        number=memory.memory,
        lens=study.settings.get("lens"),
        histogram_edges=edges,
        triggers=folded(page.triggers, top),
        quantiles=_by_quantile(sample),
        sample=sample,
        negative=[shown(one, top) for one in page.negative],
        mutation=mutation_of(tables, memory),
        similar=similar(tables, memory),
        previous=before,
        next=after,
        random=random,
        missing=missing(study, "values", "agreement", "mutation", "patterns"),
    )


def _quantile(page: MemoryPage, edges: list[float], coefficient: float) -> float | None:
    """The share of firing prefixes in bins below a coefficient's, and half of those in its own: a histogram knows no more."""
    above = page.histogram[len(page.histogram) // 2 + 1 :]  # behind the bin of 0
    if not sum(above):
        return None
    at = min(bisect_right(edges, coefficient), len(above) - 1)
    return (sum(above[:at]) + above[at] / 2) / sum(above)


def _by_quantile(sample: list[Row]) -> list[Row]:
    """Of the sampled prefixes the nearest to each quantile; each once."""
    left = [row for row in sample if row.quantile is not None]
    chosen = []
    for wanted in _QUANTILES:
        if left:
            chosen.append(min(left, key=lambda row: abs(row.quantile - wanted)))  # type: ignore[operator]
            left.remove(chosen[-1])
    return sorted(chosen, key=lambda row: -row.coefficient)


def _neighbours(tables: Tables, memory: Memory) -> tuple[str | None, str | None, str]:
    """The searched memories before and after, and one of all, drawn anew each time."""
    query = "SELECT layer, memory FROM memories WHERE (layer, memory) {} (?, ?) ORDER BY layer {}, memory {} LIMIT 1"
    found = [tables.rows(query.format(sign, way, way), memory) for sign, way in (("<", "DESC"), (">", "ASC"))]
    before, after = (str(Memory(*rows[0])) if rows else None for rows in found)
    count = tables.rows("SELECT count(*) FROM memories")[0][0]
    other = Memory(*tables.rows("SELECT layer, memory FROM memories LIMIT 1 OFFSET ?", [secrets.randbelow(count)])[0])
    return before, after, str(other)
