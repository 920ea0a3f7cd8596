"""What a search for leaks found, as text for a terminal: personal data is masked unless the study says otherwise."""

from collections.abc import Iterator
from math import exp
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from ffscope.memory_name import Memory
from ffscope.personal import masked
from ffscope.study.folder import Study
from ffscope.tokens import visible

_SHOWN, _MEMORIES = 10, 4  # leaks; memories of each
_PREFIX, _TEXT = 40, 70  # characters
_MASK = "[secret]"


def overview(study: Study) -> str:
    """The numbers of leaks of each kind, the first of them, and the exposures of canaries."""
    return "\n".join(_lines(study, study.manifest["stages"]["leaks"]))


def _lines(study: Study, entry: dict[str, Any]) -> Iterator[str]:
    leaks = _rows(study, "leaks")
    kinds = {kind: sum(row["kind"] == kind for row in leaks) for kind in ("secret", "phrase", "copied")}
    personal = sum(bool(row["personal"]) for row in leaks)
    yield (
        f"{len(leaks):,} completions of {entry['options']['leak_tokens']} tokens or more, {personal} with personal data. Tied to "
        f"one context: {kinds['secret']:,}; phrases: {kinds['phrase']:,}; copied from the sentence: {kinds['copied']:,}."
    )
    yield from _measured(leaks, entry)
    memories = _rows(study, "leak_memories")
    for row in leaks[:_SHOWN]:
        holders = [Memory(other["layer"], other["memory"]) for other in memories if _holds(other, row)]
        yield _leak_line(row, holders, personal=entry["show_personal"])
    if study.path("canaries.parquet").is_file():
        yield from (_canary_line(row, personal=entry["show_personal"]) for row in _rows(study, "canaries"))


def _holds(other: dict[str, Any], leak: dict[str, Any]) -> bool:
    return other["leak"] == leak["leak"] and other["holds"]


def _measured(leaks: list[dict[str, Any]], entry: dict[str, Any]) -> Iterator[str]:
    measured = [row for row in leaks if row["log_prob"] is not None]
    broken = [row["memories"] for row in measured if row["memories"] is not None]
    if not measured:
        return
    sentence = f"{len(broken)} of {len(measured)} that were measured are broken without some memories"
    if broken:
        sentence += f" (median {median(broken):g})"
    if entry["together"] is not None:
        change = entry["together"][0]
        sentence += (
            f"; without all {entry['memories']:,} of them, held-out perplexity is {exp(entry['loss'] + change):.4g} instead of "
            f"{exp(entry['loss']):.4g}"
        )
    yield f"{sentence}."


def _leak_line(row: dict[str, Any], holders: list[Memory], *, personal: bool) -> str:
    parts = row["prefix"], row["text"], row["rest"]
    prefix, text, _ = parts if personal else masked(*parts)
    kind = ", ".join(filter(None, (row["kind"], row["personal"])))
    names = " ".join(map(str, holders[:_MEMORIES])) + (" …" if len(holders) > _MEMORIES else "")
    shown = f"{visible(prefix[-_PREFIX:], None)} → {visible(text, _TEXT)}"
    return f"  {row['leak']}. {kind}: {shown}" + (f" ({names})" if names else "")


def _canary_line(row: dict[str, Any], *, personal: bool) -> str:
    secret = row["secret"] if personal else _MASK
    bound = "" if row["all_candidates"] or row["rank"] > 1 else "at least "
    modelled = "" if row["exposure_modelled"] is None else f", {row['exposure_modelled']:.1f} by the skew-normal model"
    text = visible(f"{row['before']}{secret}{row['after']}", _TEXT)
    return f"  {text}: exposure {bound}{row['exposure']:.1f} of {row['space']:.1f} bits{modelled}"


def _rows(study: Study, name: str) -> list[dict[str, Any]]:
    return pq.read_table(study.path(f"{name}.parquet")).to_pylist()
