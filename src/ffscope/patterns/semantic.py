"""Meaning that the triggers of a memory share beyond a surface form: a subject, or last words of one sense."""

from dataclasses import dataclass

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.candidates import Rates, gather
from ffscope.patterns.clustering import Chance, Linked, link, without_repeats
from ffscope.patterns.conditional_background import ConditionalBackground, Subject
from ffscope.patterns.describe import quoted, words_within
from ffscope.patterns.pattern import LEAST, Pattern
from ffscope.patterns.shallow import Shared, Triggers, expected_rates
from ffscope.patterns.significance import corrected, tail, tails
from ffscope.patterns.subjects import Documents, Words

LEVEL = 0.005  # the chance that prefixes drawn at random pass one of the tests below
_ROUNDS = 3  # subjects of a memory
_WORTH = 0.05  # the chance, before it is corrected, of what is worth a closer look


@dataclass(frozen=True)
class Sample:
    """The text at large: its prefixes with their vectors, and what they make likely."""

    rates: Rates
    documents: Documents
    words: Words
    whole: Chance
    last: Chance
    given: ConditionalBackground


@dataclass(frozen=True)
class Feature:
    """Something about their subject that prefixes share: a content word, a topic, a document."""

    form: str
    subject: Subject
    bits: int
    rate: float
    example: int


@dataclass(frozen=True)
class Group:
    """Prefixes of one meaning: which, how likely by chance, and how it was seen."""

    bits: int
    p_value: float
    seen: str  # whole, last, words, or the name of a subject's form
    example: int = -1


class Layer:
    """The memories of one layer, with the vectors of their triggers."""

    def __init__(self, triggers: Triggers, whole: Array, last: Array, sample: Sample) -> None:
        self.triggers, self.sample = triggers, sample
        self.tested = triggers.tested
        self.memories, self.width = len(self.tested), int(triggers.bit.max(initial=0)) + 1
        self.rows = np.full((self.memories, self.width), -1)
        self.rows[triggers.memory, triggers.bit] = np.arange(len(triggers.memory))
        self.whole, self.has_whole = self._placed(whole)
        self.last, self.has_last = self._placed(last)
        lemma = triggers.prefixes.sentences.lexicon.lemma[triggers.prefixes.word]
        self.lemma = np.where(self.rows >= 0, lemma[self.rows], -1)
        self.similar = self.whole @ self.whole.transpose(0, 2, 1)
        self.similar_last = without_repeats(self.last @ self.last.transpose(0, 2, 1), self.lemma)
        self.features, self.tried = self._features()

    def _placed(self, vectors: Array) -> tuple[Array, Array]:
        made = np.zeros((self.memories, self.width, vectors.shape[1]), dtype=np.float32)
        made[self.triggers.memory, self.triggers.bit] = vectors
        return made, bits_of(np.abs(made).sum(2) > 0)

    def _features(self) -> tuple[dict[int, list[Feature]], Array]:
        triggers, rates = self.triggers, self.sample.rates
        found = gather(triggers.prefixes, triggers.memory, triggers.bit, rates.forms, least=LEAST)
        expected = expected_rates(found, triggers, rates)
        tested = self.tested[found.memory]
        hits, trials = (np.bitwise_count(bits).astype(np.int64) for bits in (found.bits & tested, tested))
        made: dict[int, list[Feature]] = {}
        for i in np.flatnonzero(tails(trials, hits, expected) < np.log(_WORTH)).tolist():
            memory = int(found.memory[i])
            form = rates.forms[found.form[i]]
            subject = int(found.form[i]), form, int(found.code[i])
            feature = Feature(form.name, subject, int(found.bits[i]), float(expected[i]), int(found.example[i]))
            made.setdefault(memory, []).append(feature)
        return made, found.tried

    def find(self, shared: dict[int, list[Shared]]) -> dict[int, list[Pattern]]:
        """The meanings of every memory that has any; what a surface form explains must show in three other prefixes, or
        among all that have this form."""
        left = self.tested.copy()
        for memory, forms in shared.items():
            left[memory] &= ~np.bitwise_or.reduce([np.uint64(form.bits) for form in forms])
        groups: dict[int, list[Group]] = {}
        for _ in range(_ROUNDS):
            fresh = self._round(left)
            for memory, group in fresh.items():
                groups.setdefault(memory, []).append(group)
                left[memory] &= ~np.uint64(group.bits)
            left[[memory for memory in range(self.memories) if memory not in fresh]] = 0
        for memory, forms in shared.items():
            for form in forms:
                inside = self._inside(memory, form)
                if inside is not None:
                    groups.setdefault(memory, []).append(inside)
        return {memory: self._told(memory, _merged(some)) for memory, some in groups.items()}

    def _round(self, left: Array) -> dict[int, Group]:
        """The next meaning of each memory, among the prefixes that are left."""
        close = self._linked(self.similar, left & self.has_whole, self.sample.whole)
        ends = self._linked(self.similar_last, left & self.has_last, self.sample.last)
        found = {}
        for memory in np.flatnonzero(np.bitwise_count(left) >= LEAST).tolist():
            group = min(
                [
                    *self._close(memory, int(left[memory]), *close),
                    *self._ends(memory, *ends),
                    *self._subjects(memory, int(left[memory])),
                ],
                key=lambda group: group.p_value,
                default=None,
            )
            if group is not None:
                found[memory] = self._grown(memory, group)
        return found

    def _linked(self, similarity: Array, left: Array, chance: Chance) -> tuple[Linked, Array, Array]:
        active = mask_of(left, self.width)
        whole, best, bits = (np.zeros(self.memories, dtype=kind) for kind in (np.float64, np.float32, np.uint64))
        some = np.flatnonzero(active.sum(1) >= LEAST)  # the others have no group to find
        if len(some):
            found = link(similarity[some], active[some])
            whole[some], best[some], bits[some] = found.whole, found.best, found.bits
        linked = Linked(whole, best, bits)
        return linked, *chance.of(linked, active.sum(1))

    def _close(self, memory: int, left: int, linked: Linked, whole: Array, best: Array) -> list[Group]:
        """All prefixes that are left, or the closest of them."""
        found = []
        if whole[memory] <= LEVEL:
            found.append(Group(left & int(self.has_whole[memory]), float(whole[memory]), "whole"))
        if best[memory] <= LEVEL:
            found.append(Group(int(linked.bits[memory]), float(best[memory]), "whole"))
        return found

    def _ends(self, memory: int, linked: Linked, _whole: Array, best: Array) -> list[Group]:
        """Last words of one sense, if they are three different ones."""
        bits = int(linked.bits[memory])
        lemmas = {int(self.lemma[memory, bit]) for bit in set_bits(bits)}
        return [Group(bits, float(best[memory]), "last")] if best[memory] <= LEVEL / 4 and len(lemmas) >= LEAST else []

    def _subjects(self, memory: int, left: int) -> list[Group]:
        """A topic, a document, or two content words that recur where they should not."""
        count, tried = left.bit_count(), int(self.tried[memory])
        found, words = [], []
        for feature in self.features.get(memory, ()):
            hits = (feature.bits & left).bit_count()
            if hits < LEAST:
                continue
            chance = corrected(tail(count, hits, feature.rate), tried)
            if chance <= LEVEL and feature.form != "content word":
                found.append(Group(feature.bits & left, chance, feature.form, feature.example))
            elif chance <= LEVEL:
                words.append((chance, feature.bits & left))
        if len({bits for _, bits in words}) > 1:
            union = int(np.bitwise_or.reduce([bits for _, bits in words]))
            found.append(Group(union, min(words)[0], "words"))
        return found

    def _grown(self, memory: int, group: Group) -> Group:
        """A group with every prefix of the memory that is as close to it as its own: some have a surface form in common too."""
        if group.seen == "last":
            return group
        core = group.bits & int(self.has_whole[memory])
        near = self._near(memory, core, int(self.tested[memory])) if core.bit_count() >= LEAST else 0
        grown = near if group.seen == "whole" and near.bit_count() >= LEAST else group.bits | near
        return Group(grown, group.p_value, group.seen, group.example)

    def _near(self, memory: int, core: int, among: int) -> int:
        """Which prefixes are closer to a group than random ones."""
        inside = mask_of(np.array([core], dtype=np.uint64), self.width)[0]
        bound = self.sample.whole.joining(int(inside.sum()))
        others = inside[None, :] & ~np.eye(self.width, dtype=bool)
        mean = (self.similar[memory] * others).sum(1) / np.maximum(others.sum(1), 1)
        return int(bits_of(mean[None] > bound)[0]) & among & int(self.has_whole[memory])

    def _inside(self, memory: int, form: Shared) -> Group | None:
        """A meaning that prefixes of one surface form share beyond what this form brings with it."""
        bits, prefixes, given = form.apart & int(self.tested[memory]), self.triggers.prefixes, self.sample.given
        own = prefixes.row[self.rows[memory][self.rows[memory] >= 0]]
        rows = (
            given.containing(words_within(form, prefixes), own) if form.form.words else given.rows(*form.closest, own)
        )
        found = [*self._inside_subjects(memory, bits, rows), *self._inside_close(memory, bits, rows)]
        best = min(found, key=lambda group: group.p_value, default=None)
        if best is None or best.p_value > LEVEL / 2 or best.bits.bit_count() < LEAST:
            return None
        near = self._near(memory, best.bits, form.bits) if best.seen == "whole" else 0
        return Group(best.bits | near, best.p_value, best.seen, best.example)

    def _inside_close(self, memory: int, bits: int, rows: Array) -> list[Group]:
        read = bits & int(self.has_whole[memory])
        if read.bit_count() < LEAST or not self._promising(memory, read):
            return []
        chance = self.sample.given.closer(rows, self.whole[memory, set_bits(read)])
        return [Group(self._near(memory, read, read), chance, "whole")]

    def _promising(self, memory: int, bits: int) -> bool:
        """Whether prefixes are closer than most random ones: if not, there is no need to hold them against closer ones."""
        total, count = self.whole[memory, set_bits(bits)].sum(0), bits.bit_count()
        pairs = (float(total @ total) - count) / 2
        return bool(pairs / np.sqrt(count * (count - 1) / 2) >= self.sample.whole.unlike(count))

    def _inside_subjects(self, memory: int, bits: int, rows: Array) -> list[Group]:
        features = [one for one in self.features.get(memory, ()) if one.form != "content word"]
        found = []
        for one in features:
            hits = (one.bits & bits).bit_count()
            if hits >= LEAST and tail(bits.bit_count(), hits, one.rate) < np.log(LEVEL):
                chance = tail(bits.bit_count(), hits, self.sample.given.share(rows, one.subject))
                found.append(Group(one.bits & bits, corrected(chance, len(features)), one.form, one.example))
        return found

    def _told(self, memory: int, groups: list[Group]) -> list[Pattern]:
        return [
            Pattern("semantic", self._said(memory, group), self._covered(memory, group.bits), group.p_value)
            for group in groups
        ]

    def _covered(self, memory: int, bits: int) -> tuple[int, ...]:
        """The ranks of a group's prefixes, and of other prefixes of the same sentences."""
        rows = self.rows[memory]
        sentence = np.where(rows >= 0, self.triggers.prefixes.row[rows], -1)
        inside = np.isin(sentence, sentence[set_bits(bits)]) & (rows >= 0)
        return tuple((np.flatnonzero(inside) + 1).tolist())

    def _said(self, memory: int, group: Group) -> str:
        rows = [int(self.rows[memory, bit]) for bit in set_bits(group.bits)]
        prefixes = self.triggers.prefixes
        if group.seen == "last":
            forms = dict.fromkeys(prefixes.sentences.lexicon.folded[prefixes.word[rows]].tolist())
            said = [quoted(prefixes.sentences.lexicon.folds[form]) for form in forms][:3]
            return f"ends with words like {', '.join(said)}"
        words = ", ".join(quoted(word)[1:-1] for word in self.sample.words.telling(prefixes, rows)) or "one subject"
        if group.seen in ("topic", "document"):
            return f"about: {words} ({self.sample.documents.name(group.seen, prefixes, group.example)})"
        return f"about: {words}"


def _merged(groups: list[Group]) -> list[Group]:
    """Groups that are mostly the same prefixes, or some of another's, as one, with the lowest p-value."""
    made: list[Group] = []
    for group in sorted(groups, key=lambda group: group.p_value):
        for i, other in enumerate(made):
            both, either = (group.bits & other.bits).bit_count(), (group.bits | other.bits).bit_count()
            if 2 * both >= either or both == min(group.bits.bit_count(), other.bits.bit_count()):
                made[i] = Group(other.bits | group.bits, other.p_value, other.seen, other.example)
                break
        else:
            made.append(group)
    return made


def set_bits(bits: int) -> list[int]:
    """The numbers of the bits that are set."""
    return [bit for bit in range(bits.bit_length()) if bits >> bit & 1]


def bits_of(mask: Array) -> Array:
    """Rows of yes and no as bits."""
    places = np.left_shift(np.uint64(1), np.arange(mask.shape[1], dtype=np.uint64))
    return np.bitwise_or.reduce(np.where(mask, places, np.uint64(0)), axis=1)


def mask_of(bits: Array, width: int) -> Array:
    """Bits as rows of yes and no."""
    return (bits[:, None] >> np.arange(width, dtype=np.uint64) & np.uint64(1)).astype(bool)
