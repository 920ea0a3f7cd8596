"""Agreement of people with each other, and with programs, on which prefixes of a memory share a pattern."""

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
    """Agreement of two annotators on one question. kappa is None if undefined: no shared prefixes, or always the same answer."""

    question: str
    first: str
    second: str
    kappa: float | None
    agreement: float | None  # share of the prefixes with the same answer
    prefixes: int
    memories: int


@dataclass(frozen=True)
class Alpha:
    """Agreement of all people on one question, over the prefixes that at least two of them answered for."""

    question: str
    alpha: float | None
    prefixes: int
    memories: int


@dataclass(frozen=True)
class AgreementSummary:
    """How many memories each person annotated, the agreement of each pair, and that of all people."""

    people: dict[str, int]
    pairs: list[Pair]
    alphas: list[Alpha]


def measure_agreement(study: Study) -> AgreementSummary:
    """Compare every person with every other and with each program, on the prefixes that both have judged."""
    annotations = read(study)
    people = _by_people(annotations)
    done = {name: sum(annotation.annotator == name for annotation in annotations) for name in people}
    programs = _by_programs(study, sorted({annotation.memory for annotation in annotations}))
    couples = [*combinations(people, 2), *((person, program) for person in people for program in programs)]
    labels_by_annotator = people | programs
    return AgreementSummary(
        people=done,
        pairs=[_pair(question, couple, labels_by_annotator) for question in QUESTIONS for couple in couples],
        alphas=[_alpha(question, list(people.values())) for question in QUESTIONS] if len(people) > 1 else [],
    )


def labels(patterns: Iterable[Pattern], ranks: Iterable[int]) -> dict[int, str]:
    """The label of each prefix, as in the paper's figure 2: shallow, semantic, both or not covered."""
    kinds: dict[int, set[str]] = {rank: set() for rank in ranks}
    for pattern in patterns:
        for rank in kinds.keys() & set(pattern.covers):
            kinds[rank].add(pattern.kind)
    return {
        rank: BOTH if len(prefix_kinds) > 1 else next(iter(prefix_kinds), NOT_COVERED)
        for rank, prefix_kinds in kinds.items()
    }


def kappa(first: Sequence[Hashable], second: Sequence[Hashable]) -> float | None:
    """Cohen's kappa of two annotators' answers on the same units."""
    counts = _contingency(zip(first, second, strict=True))
    if not counts.size:
        return None
    shares = counts / counts.sum()
    expected = float(shares.sum(0) @ shares.sum(1))
    return None if np.isclose(expected, 1) else float((np.trace(shares) - expected) / (1 - expected))


def alpha(answers: Sequence[Sequence[Hashable | None]]) -> float | None:
    """Krippendorff's alpha for nominal answers, given as annotators × units; None is a missing answer."""
    units = [[answer for answer in unit if answer is not None] for unit in zip(*answers, strict=True)]
    units = [unit for unit in units if len(unit) > 1]  # a single answer cannot agree with another
    names = {name: i for i, name in enumerate(dict.fromkeys(answer for unit in units for answer in unit))}
    counts = np.zeros((len(units), len(names)))
    for row, unit in zip(counts, units, strict=True):
        np.add.at(row, [names[answer] for answer in unit], 1)
    if len(names) < 2:
        return None
    sizes, totals = counts.sum(1), counts.sum(0)
    observed = ((sizes**2 - (counts**2).sum(1)) / (sizes - 1)).sum()
    expected = (totals.sum() ** 2 - (totals**2).sum()) / (totals.sum() - 1)
    return float(1 - observed / expected)


def _contingency(answers: Iterable[tuple[Hashable, Hashable]]) -> np.ndarray:
    """Contingency table: how often each answer of the first goes with each of the second."""
    pairs = list(answers)
    names = {name: i for i, name in enumerate(dict.fromkeys(answer for couple in pairs for answer in couple))}
    counts = np.zeros((len(names), len(names)))
    for first, second in pairs:
        counts[names[first], names[second]] += 1
    return counts


def _pair(question: str, couple: tuple[str, str], labels_by_annotator: Mapping[str, Labels]) -> Pair:
    first, second = (_answers(question, labels_by_annotator[name]) for name in couple)
    shared = [prefix for prefix in first if prefix in second]
    first_answers, second_answers = [first[prefix] for prefix in shared], [second[prefix] for prefix in shared]
    same = sum(a == b for a, b in zip(first_answers, second_answers, strict=True))
    return Pair(
        question,
        *couple,
        kappa=kappa(first_answers, second_answers),
        agreement=same / len(shared) if shared else None,
        prefixes=len(shared),
        memories=len({memory for memory, _ in shared}),
    )


def _alpha(question: str, people: list[Labels]) -> Alpha:
    answers = [_answers(question, labels) for labels in people]
    prefixes = sorted(set().union(*answers))
    shared = [prefix for prefix in prefixes if sum(prefix in person for person in answers) > 1]
    value = alpha([[person.get(prefix) for prefix in shared] for person in answers])
    return Alpha(question, value, prefixes=len(shared), memories=len({memory for memory, _ in shared}))


def _answers(question: str, prefix_labels: Labels) -> dict[Prefix, str]:
    """An annotator's answers to a question: covered or not or, for covered prefixes, by which kind."""
    if question == "kind":
        return {prefix: label for prefix, label in prefix_labels.items() if label != NOT_COVERED}
    return {prefix: label if label == NOT_COVERED else "covered" for prefix, label in prefix_labels.items()}


def _by_people(annotations: list[Annotation]) -> dict[str, Labels]:
    labels_by_person: dict[str, Labels] = {
        name: {} for name in sorted({annotation.annotator for annotation in annotations})
    }
    for annotation in annotations:
        labels_by_person[annotation.annotator] |= _labels_by_place(
            annotation.memory, annotation.patterns, annotation.places
        )
    return labels_by_person


def _labels_by_place(memory: Memory, patterns: Iterable[Pattern], places: dict[int, Place]) -> Labels:
    """Labels by place rather than by rank, since another search may rank the prefixes differently."""
    return {(memory, places[rank]): label for rank, label in labels(patterns, places).items()}


def _by_programs(study: Study, memories: list[Memory]) -> dict[str, Labels]:
    """The labels of each program, for the memories that it examined."""
    if not memories or not study.has("patterns"):
        return {}
    patterns = patterns_by_annotator(study, memories)
    places = trigger_places(study, memories, count=TRIGGERS)
    labelled = study.manifest["stages"].get("labels", {})
    labels_by_program: dict[str, Labels] = {}
    for program in sorted({MACHINE} | {name for name, _ in patterns}):
        # The machine examines all memories, a language model only some. The study lists those in which it found no pattern.
        without_pattern = labelled.get("without_pattern", []) if labelled.get("annotator") == program else []
        labels_by_program[program] = {}
        for memory in memories:
            if program == MACHINE or (program, memory) in patterns or str(memory) in without_pattern:
                labels_by_program[program] |= _labels_by_place(
                    memory, patterns.get((program, memory), []), places[memory]
                )
    return labels_by_program
