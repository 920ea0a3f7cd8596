"""How far people agree with each other, and with the machine, on what the prefixes of a memory share."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from ffscope.memory_name import Memory
from ffscope.patterns.pattern import MACHINE, TRIGGERS, Pattern
from ffscope.queries.annotations import Annotation, read
from ffscope.queries.patterns import patterns_by_annotator
from ffscope.queries.prefixes import Place, trigger_places
from ffscope.study.folder import Study

QUESTIONS = ("coverage", "kind")
BOTH, NOT_COVERED = "both", "not covered"

Prefix = tuple[Memory, Place]
Labels = dict[Prefix, str]


@dataclass(frozen=True)
class Pair:
    """Two annotators on one question. kappa is None where it is undefined: nothing in common, or always the same answer."""

    question: str
    first: str
    second: str
    kappa: float | None
    agreement: float | None  # share of the prefixes on which they say the same
    prefixes: int
    memories: int


@dataclass(frozen=True)
class Alpha:
    """All people on one question, over the prefixes that at least two of them speak of."""

    question: str
    alpha: float | None
    prefixes: int
    memories: int


@dataclass(frozen=True)
class Concord:
    """Who annotated how many memories, how far each pair agrees, and all people together."""

    people: dict[str, int]
    pairs: list[Pair]
    alphas: list[Alpha]


def concord(study: Study) -> Concord:
    """Every person against every other and against what programs found, on the prefixes that both looked at."""
    annotations = read(study)
    people = _by_people(annotations)
    done = {name: sum(one.annotator == name for one in annotations) for name in people}
    programs = _by_programs(study, sorted({one.memory for one in annotations}))
    couples = [*combinations(people, 2), *((person, program) for person in people for program in programs)]
    said = people | programs
    return Concord(
        people=done,
        pairs=[_pair(question, couple, said) for question in QUESTIONS for couple in couples],
        alphas=[_alpha(question, list(people.values())) for question in QUESTIONS] if len(people) > 1 else [],
    )


def labels(patterns: Iterable[Pattern], ranks: Iterable[int]) -> dict[int, str]:
    """What the patterns on each prefix are, as in the paper's figure 2: shallow, semantic, both or not covered."""
    kinds: dict[int, set[str]] = {rank: set() for rank in ranks}
    for pattern in patterns:
        for rank in kinds.keys() & set(pattern.covers):
            kinds[rank].add(pattern.kind)
    return {rank: BOTH if len(found) > 1 else next(iter(found), NOT_COVERED) for rank, found in kinds.items()}


def kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen's kappa of two annotators' answers about the same units."""
    counts = _table(zip(first, second, strict=True))
    if not counts.size:
        return None
    shares = counts / counts.sum()
    expected = float(shares.sum(0) @ shares.sum(1))
    return None if np.isclose(expected, 1) else float((np.trace(shares) - expected) / (1 - expected))


def alpha(answers: Sequence[Sequence[Hashable | None]]) -> float | None:
    """Krippendorff's alpha for names, of annotators × units; None is an answer that is missing."""
    units = [[one for one in unit if one is not None] for unit in zip(*answers, strict=True)]
    units = [unit for unit in units if len(unit) > 1]  # one answer alone agrees with nothing
    names = {name: i for i, name in enumerate(dict.fromkeys(one for unit in units for one in unit))}
    counts = np.zeros((len(units), len(names)))
    for row, unit in zip(counts, units, strict=True):
        np.add.at(row, [names[one] for one in unit], 1)
    if len(names) < 2:
        return None
    sizes, totals = counts.sum(1), counts.sum(0)
    observed = ((sizes**2 - (counts**2).sum(1)) / (sizes - 1)).sum()
    expected = (totals.sum() ** 2 - (totals**2).sum()) / (totals.sum() - 1)
    return float(1 - observed / expected)


def _table(couples: Iterable[tuple[Hashable, Hashable]]) -> np.ndarray:
    """How often each answer of the first met each of the second."""
    listed = list(couples)
    names = {name: i for i, name in enumerate(dict.fromkeys(one for couple in listed for one in couple))}
    counts = np.zeros((len(names), len(names)))
    for one, other in listed:
        counts[names[one], names[other]] += 1
    return counts


def _pair(question: str, couple: tuple[str, str], said: Mapping[str, Labels]) -> Pair:
    first, second = (_answers(question, said[name]) for name in couple)
    shared = [prefix for prefix in first if prefix in second]
    ours, theirs = [first[prefix] for prefix in shared], [second[prefix] for prefix in shared]
    same = sum(one == other for one, other in zip(ours, theirs, strict=True))
    return Pair(
        question,
        *couple,
        kappa=kappa(ours, theirs),
        agreement=same / len(shared) if shared else None,
        prefixes=len(shared),
        memories=len({memory for memory, _ in shared}),
    )


def _alpha(question: str, people: list[Labels]) -> Alpha:
    answers = [_answers(question, said) for said in people]
    prefixes = sorted(set().union(*answers))
    shared = [prefix for prefix in prefixes if sum(prefix in said for said in answers) > 1]
    found = alpha([[said.get(prefix) for prefix in shared] for said in answers])
    return Alpha(question, found, prefixes=len(shared), memories=len({memory for memory, _ in shared}))


def _answers(question: str, said: Labels) -> dict[Prefix, str]:
    """What somebody says to a question: covered or not; and, of what is covered, by which kind."""
    if question == "kind":
        return {prefix: label for prefix, label in said.items() if label != NOT_COVERED}
    return {prefix: label if label == NOT_COVERED else "covered" for prefix, label in said.items()}


def _by_people(annotations: list[Annotation]) -> dict[str, Labels]:
    said: dict[str, Labels] = {name: {} for name in sorted({one.annotator for one in annotations})}
    for one in annotations:
        said[one.annotator] |= _placed(one.memory, one.patterns, one.places)
    return said


def _placed(memory: Memory, patterns: Iterable[Pattern], places: dict[int, Place]) -> Labels:
    """Labels by what was read, not by its rank: another search may have given it another."""
    return {(memory, places[rank]): label for rank, label in labels(patterns, places).items()}


def _by_programs(study: Study, memories: list[Memory]) -> dict[str, Labels]:
    """What programs say of memories, each of those that it looked at."""
    if not memories or not study.has("patterns"):
        return {}
    found = patterns_by_annotator(study, memories)
    places = trigger_places(study, memories, count=TRIGGERS)
    labelled = study.manifest["stages"].get("labels", {})
    said: dict[str, Labels] = {}
    for program in sorted({MACHINE} | {name for name, _ in found}):
        # The machine looks at all memories. A language model is asked about some: without a row, the study says of which in vain.
        in_vain = labelled.get("without_pattern", []) if labelled.get("annotator") == program else []
        said[program] = {}
        for memory in memories:
            if program == MACHINE or (program, memory) in found or str(memory) in in_vain:
                said[program] |= _placed(memory, found.get((program, memory), []), places[memory])
    return said
