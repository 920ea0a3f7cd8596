"""Semantic patterns: a subject that the triggers of a memory share beyond a surface form."""

from dataclasses import dataclass

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.bits import bits_of, mask_of, set_bits
from ffscope.patterns.candidates import Rates, find_candidates
from ffscope.patterns.clustering import Clusters, RandomSets, cluster
from ffscope.patterns.conditional_background import ConditionalBackground, Subject
from ffscope.patterns.describe import words_within
from ffscope.patterns.pattern import LEAST, Pattern
from ffscope.patterns.senses import WordSet
from ffscope.patterns.shallow import Shared, Triggers, expected_rates
from ffscope.patterns.significance import corrected, log_tail, log_tails
from ffscope.patterns.subjects import Documents, SubjectWords

LEVEL = 0.002  # the probability that random prefixes pass one of the tests below
LEAST_WORDS = 6  # words of a prefix for it to have a subject of its own
_ROUNDS = 3  # subjects per memory
_PRELIMINARY = 0.05  # uncorrected p-value up to which a feature is examined further


@dataclass(frozen=True)
class Sample:
    """Statistics of a sample of the corpus, with which triggers are compared."""

    rates: Rates
    documents: Documents
    words: SubjectWords
    whole: RandomSets
    conditional: ConditionalBackground


@dataclass(frozen=True)
class Feature:
    """A property of their subject that prefixes share: a content word, a topic, a document."""

    form: str
    subject: Subject
    bits: int
    rate: float
    example: int


@dataclass(frozen=True)
class Group:
    """Prefixes that share a meaning: their bits, the p-value, and the test that found it."""

    bits: int
    p_value: float
    test: str  # whole, words, or the name of a subject's form
    example: int = -1


class Layer:
    """The memories of one layer, with the vectors of their triggers."""

    def __init__(self, triggers: Triggers, whole: Array, sample: Sample) -> None:
        self.triggers, self.sample = triggers, sample
        self.tested = triggers.tested
        self.memories, self.width = len(self.tested), int(triggers.bit.max(initial=0)) + 1
        self.rows = np.full((self.memories, self.width), -1)
        self.rows[triggers.memory, triggers.bit] = np.arange(len(triggers.memory))
        self.whole, self.has_whole = self._placed(whole)
        self.similar = self.whole @ self.whole.transpose(0, 2, 1)
        self.features, self.tried = self._features()

    def _placed(self, vectors: Array) -> tuple[Array, Array]:
        placed = np.zeros((self.memories, self.width, vectors.shape[1]), dtype=np.float32)
        placed[self.triggers.memory, self.triggers.bit] = vectors
        return placed, bits_of(np.abs(placed).sum(2) > 0)

    def _features(self) -> tuple[dict[int, list[Feature]], Array]:
        triggers, rates = self.triggers, self.sample.rates
        candidates = find_candidates(triggers.prefixes, triggers.memory, triggers.bit, rates.forms, least=LEAST)
        expected = expected_rates(candidates, triggers, rates)
        tested = self.tested[candidates.memory]
        hits, trials = (np.bitwise_count(bits).astype(np.int64) for bits in (candidates.bits & tested, tested))
        features: dict[int, list[Feature]] = {}
        for i in np.flatnonzero(log_tails(trials, hits, expected) < np.log(_PRELIMINARY)).tolist():
            memory = int(candidates.memory[i])
            form = rates.forms[candidates.form[i]]
            subject = int(candidates.form[i]), form, int(candidates.code[i])
            feature = Feature(
                form.name, subject, int(candidates.bits[i]), float(expected[i]), int(candidates.example[i])
            )
            features.setdefault(memory, []).append(feature)
        return features, candidates.tried.sum(1)

    def find(self, shared: dict[int, list[Shared]], sets: dict[int, list[WordSet]]) -> dict[int, list[Pattern]]:
        """The subjects of every memory that has any. Prefixes with a shared surface form, or with last words of one sense,
        count only if three other prefixes have the subject too, or if it stands out among all prefixes with this form."""
        remaining = self.tested.copy()
        for memory in shared.keys() | sets.keys():
            explained = [np.uint64(other.bits) for other in (*shared.get(memory, ()), *sets.get(memory, ()))]
            remaining[memory] &= ~np.bitwise_or.reduce(explained)
        groups: dict[int, list[Group]] = {}
        for _ in range(_ROUNDS):
            new_groups = self._round(remaining)
            for memory, group in new_groups.items():
                groups.setdefault(memory, []).append(group)
                remaining[memory] &= ~np.uint64(group.bits)
            remaining[[memory for memory in range(self.memories) if memory not in new_groups]] = 0
        for memory, forms in shared.items():
            for form in forms:
                group_within = self._within_form(memory, form)
                if group_within is not None:
                    groups.setdefault(memory, []).append(group_within)
        return {memory: self._patterns(memory, _merged(memory_groups)) for memory, memory_groups in groups.items()}

    def _round(self, remaining: Array) -> dict[int, Group]:
        """The next meaning of each memory, among the remaining prefixes."""
        close = self._clusters(self.similar, remaining & self.has_whole, self.sample.whole)
        best_groups = {}
        for memory in np.flatnonzero(np.bitwise_count(remaining) >= LEAST).tolist():
            group = min(
                [
                    *self._close(memory, int(remaining[memory]), *close),
                    *self._subjects(memory, int(remaining[memory])),
                ],
                key=lambda group: group.p_value,
                default=None,
            )
            if group is not None:
                best_groups[memory] = self._extended(memory, group)
        return best_groups

    def _clusters(self, similarity: Array, remaining: Array, random_sets: RandomSets) -> tuple[Clusters, Array, Array]:
        active = mask_of(remaining, self.width)
        whole, best, bits = (np.zeros(self.memories, dtype=kind) for kind in (np.float64, np.float32, np.uint64))
        memories = np.flatnonzero(active.sum(1) >= LEAST)  # the others are too small for a group
        if len(memories):
            selected = cluster(similarity[memories], active[memories])
            whole[memories], best[memories], bits[memories] = selected.whole, selected.best, selected.bits
        clusters = Clusters(whole, best, bits)
        return clusters, *random_sets.p_values(clusters, active.sum(1))

    def _close(self, memory: int, remaining: int, clusters: Clusters, whole: Array, best: Array) -> list[Group]:
        """All remaining prefixes, or the closest group of them."""
        groups = []
        if whole[memory] <= LEVEL:
            groups.append(Group(remaining & int(self.has_whole[memory]), float(whole[memory]), "whole"))
        if best[memory] <= LEVEL:
            groups.append(Group(int(clusters.bits[memory]), float(best[memory]), "whole"))
        return groups

    def _subjects(self, memory: int, remaining: int) -> list[Group]:
        """A topic, a document, or two content words that recur more often than by chance."""
        count, tried = remaining.bit_count(), int(self.tried[memory])
        groups, words = [], []
        for feature in self.features.get(memory, ()):
            hits = (feature.bits & remaining).bit_count()
            if hits < LEAST:
                continue
            chance = corrected(log_tail(count, hits, feature.rate), tried)
            if chance <= LEVEL and feature.form != "content word":
                groups.append(Group(feature.bits & remaining, chance, feature.form, feature.example))
            elif chance <= LEVEL:
                words.append((chance, feature.bits & remaining))
        if len({bits for _, bits in words}) > 1:
            union = int(np.bitwise_or.reduce([bits for _, bits in words]))
            groups.append(Group(union, min(words)[0], "words"))
        return groups

    def _extended(self, memory: int, group: Group) -> Group:
        """A group extended by all prefixes of the memory that are close to it, including those with a shared surface form."""
        if group.test in ("document", "topic"):
            return group
        core = group.bits & int(self.has_whole[memory])
        near = self._near(memory, core, int(self.tested[memory])) if core.bit_count() >= LEAST else 0
        extended = near if group.test == "whole" and near.bit_count() >= LEAST else group.bits | near
        return Group(extended, group.p_value, group.test, group.example)

    def _near(self, memory: int, core: int, among: int) -> int:
        """Which prefixes are closer to a group than random prefixes."""
        inside = mask_of(np.array([core], dtype=np.uint64), self.width)[0]
        bound = self.sample.whole.joining_bound(self.whole[memory, inside])
        others = inside[None, :] & ~np.eye(self.width, dtype=bool)
        mean = (self.similar[memory] * others).sum(1) / np.maximum(others.sum(1), 1)
        return int(bits_of(mean[None] > bound)[0]) & among & int(self.has_whole[memory])

    def _within_form(self, memory: int, form: Shared) -> Group | None:
        """A meaning that prefixes with one surface form share more often than other prefixes with this form."""
        bits, prefixes, conditional = (
            form.apart & int(self.tested[memory]),
            self.triggers.prefixes,
            self.sample.conditional,
        )
        own_sentences = prefixes.row[self.rows[memory][self.rows[memory] >= 0]]
        rows = (
            conditional.containing(words_within(form, prefixes), own_sentences)
            if form.form.words
            else conditional.rows(*form.closest, own_sentences)
        )
        groups = [*self._subjects_within_form(memory, bits, rows), *self._close_within_form(memory, bits, rows)]
        # A few prefixes of a form on one subject are more likely chance than what the memory looks for.
        enough = [group for group in groups if 3 * group.bits.bit_count() >= max(bits.bit_count(), 3 * LEAST)]
        best = min(enough, key=lambda group: group.p_value, default=None)
        if best is None or best.p_value > LEVEL:
            return None
        near = self._near(memory, best.bits, form.bits) if best.test == "whole" else 0
        return Group(best.bits | near, best.p_value, best.test, best.example)

    def _close_within_form(self, memory: int, bits: int, rows: Array) -> list[Group]:
        embedded = bits & int(self.has_whole[memory])
        if embedded.bit_count() < LEAST or not self._promising(memory, embedded):
            return []
        chance = self.sample.conditional.closeness_p_value(rows, self.whole[memory, set_bits(embedded)])
        return [Group(self._near(memory, embedded, embedded), chance, "whole")]

    def _promising(self, memory: int, bits: int) -> bool:
        """Whether prefixes are closer than most random sets: if not, the costlier comparison within the form is skipped."""
        total, count = self.whole[memory, set_bits(bits)].sum(0), bits.bit_count()
        pairs = (float(total @ total) - count) / 2
        return bool(pairs / np.sqrt(count * (count - 1) / 2) >= self.sample.whole.typical_bound(count))

    def _subjects_within_form(self, memory: int, bits: int, rows: Array) -> list[Group]:
        features = [feature for feature in self.features.get(memory, ()) if feature.form != "content word"]
        groups = []
        for feature in features:
            hits = (feature.bits & bits).bit_count()
            if hits >= LEAST and log_tail(bits.bit_count(), hits, feature.rate) < np.log(LEVEL):
                chance = log_tail(bits.bit_count(), hits, self.sample.conditional.share(rows, feature.subject))
                groups.append(
                    Group(feature.bits & bits, corrected(chance, len(features)), feature.form, feature.example)
                )
        return groups

    def _patterns(self, memory: int, groups: list[Group]) -> list[Pattern]:
        return [
            Pattern("semantic", self._description(memory, group), self._covered(memory, group.bits), group.p_value)
            for group in groups
        ]

    def _covered(self, memory: int, bits: int) -> tuple[int, ...]:
        """The ranks of a group's prefixes, and of other prefixes of the same sentences."""
        rows = self.rows[memory]
        sentence = np.where(rows >= 0, self.triggers.prefixes.row[rows], -1)
        inside = np.isin(sentence, sentence[set_bits(bits)]) & (rows >= 0)
        return tuple((np.flatnonzero(inside) + 1).tolist())

    def _description(self, memory: int, group: Group) -> str:
        bits = set_bits(group.bits)
        rows, documents = np.array([int(self.rows[memory, bit]) for bit in bits]), self.sample.documents
        prefixes = self.triggers.prefixes.take(rows)
        embedded = [bit for bit in bits if int(self.has_whole[memory]) >> bit & 1]
        words = self.sample.words.describe(prefixes, self.whole[memory, embedded].sum(0)) or "one subject"
        if len(np.unique(prefixes.sentences.document[prefixes.row])) == 1:
            title = documents.title(prefixes)
            return f"from one document, {title}" if title else f"from one document about: {words}"
        topic = f" ({documents.topic_name(self.triggers.prefixes, group.example)})" if group.test == "topic" else ""
        # The model has not seen what a document is about in a prefix of a few words.
        about = "about" if 2 * (prefixes.length >= LEAST_WORDS).sum() >= len(rows) else "from documents about"
        return f"{about}: {words}{topic}"


def _merged(groups: list[Group]) -> list[Group]:
    """Groups merged where most of their prefixes are the same or one contains the other; the lowest p-value is kept."""
    merged: list[Group] = []
    for group in sorted(groups, key=lambda group: group.p_value):
        for i, other in enumerate(merged):
            both, either = (group.bits & other.bits).bit_count(), (group.bits | other.bits).bit_count()
            alike = 2 * both >= either or both == min(group.bits.bit_count(), other.bits.bit_count())
            if alike and (group.test == "document") == (other.test == "document"):
                merged[i] = Group(other.bits | group.bits, other.p_value, other.test, other.example)
                break
        else:
            merged.append(group)
    return merged
