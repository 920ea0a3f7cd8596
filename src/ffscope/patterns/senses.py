"""Sets of last words with related senses ("north", "south", "east"), which prefixes may share even if no word recurs."""

from dataclasses import dataclass

import numpy as np

from ffscope.axes import Array
from ffscope.patterns.bits import set_bits
from ffscope.patterns.clustering import RandomSets, cluster
from ffscope.patterns.conditional_background import ConditionalBackground
from ffscope.patterns.pattern import LEAST
from ffscope.patterns.prefixes import Prefixes
from ffscope.patterns.shallow import Shared, Triggers
from ffscope.patterns.word_vectors import WordVectors

LEVEL = 0.0005  # the probability that random last words are a set
_LEVEL_RECURRING = 0.003  # the same for words that recur, of which random prefixes have hardly any
_EXPLAINED = 0.8  # the share of a set that must have a coarse form for the set to be compared with words of that form
_DOMINANT = 0.6  # the share of a set that one word may have at most; beyond, the memory is about that word


@dataclass(frozen=True)
class WordSet:
    """Last words of related sense: the prefixes that end with them (bits), the words, most frequent first, and the p-value."""

    bits: int
    words: tuple[int, ...]  # case-folded
    p_value: float
    tried: int  # the number of different words that it was chosen from


@dataclass(frozen=True)
class _Ends:
    """The different last words of a memory's prefixes: words with one lemma count as one."""

    words: list[list[int]]
    bits: list[int]


class Senses:
    """The senses of last words in a sample of the corpus, with which those of triggers are compared."""

    def __init__(self, sample: Prefixes, vectors: WordVectors, seed: int) -> None:
        self.vectors, self.lexicon = vectors, sample.sentences.lexicon
        self.sample, self.seed = sample, seed
        self.content = self.lexicon.content_folds
        letters = np.array([any(map(str.isalpha, word)) for word in self.lexicon.folds])
        self.usable = letters & (np.abs(vectors.vectors).sum(1) > 0)
        every = np.arange(len(sample))
        # Function words are close to each other, and so frequent that among them no content words would seem close.
        self.random_sets = {content: self._random_sets(every, content=content) for content in (True, False)}
        self._within_form: dict[tuple[str, int, bool], RandomSets] = {}

    def _random_sets(self, rows: Array, *, content: bool, sets: int = 2000) -> RandomSets:
        """Random last words of some prefixes of the sample: content words, or function words."""
        folds = self.lexicon.folded[self.sample.word[rows]]
        usable = ~self.sample.part[rows] & self.usable[folds] & (self.content[folds] == content)
        return RandomSets(self.vectors.vectors, self.seed, folds[usable], self.lexicon.lemma_folds, sets)

    def find(self, triggers: Triggers) -> dict[int, list[WordSet]]:
        """The set of related last words of each memory that has one."""
        if not self.vectors.senses:
            return {}
        every = self._ends(triggers)
        sets: dict[int, list[WordSet]] = {}
        for content in (True, False):
            ends = {memory: self._chosen(own, content=content) for memory, own in every.items()}
            recurring = {memory: self._chosen(own, content=content, least=2) for memory, own in ends.items()}
            closest = [
                self._closest(tested, ends, content=content, level=level)
                for tested, level in ((ends, LEVEL), (recurring, _LEVEL_RECURRING))
            ]
            for memory in closest[0].keys() | closest[1].keys():
                largest = [own[memory] for own in closest if memory in own]
                sets.setdefault(memory, []).append(max(largest, key=lambda own: own.bits.bit_count()))
        return sets

    def _ends(self, triggers: Triggers) -> dict[int, _Ends]:
        prefixes, tested = triggers.prefixes, triggers.tested
        folds = self.lexicon.folded[prefixes.word]
        counted = ~prefixes.part & self.usable[folds]
        counted &= (tested[triggers.memory] >> triggers.bit.astype(np.uint64) & np.uint64(1)).astype(bool)
        grouped: dict[int, dict[int, tuple[list[int], int]]] = {}
        rows = np.flatnonzero(counted)
        for memory, bit, fold in zip(triggers.memory[rows], triggers.bit[rows], folds[rows], strict=True):
            own = grouped.setdefault(int(memory), {})
            words, bits = own.get(int(self.lexicon.lemma_folds[fold]), ([], 0))
            own[int(self.lexicon.lemma_folds[fold])] = ([*words, int(fold)], bits | 1 << int(bit))
        return {
            memory: _Ends([words for words, _ in own.values()], [bits for _, bits in own.values()])
            for memory, own in grouped.items()
        }

    def _chosen(self, ends: _Ends, *, content: bool, least: int = 1) -> _Ends:
        """The content words or the function words that end `least` prefixes: among fewer words, fewer are close by chance."""
        chosen = [i for i, words in enumerate(ends.words) if len(words) >= least and self.content[words[0]] == content]
        return _Ends([ends.words[i] for i in chosen], [ends.bits[i] for i in chosen])

    def _closest(
        self, tested: dict[int, _Ends], ends: dict[int, _Ends], *, content: bool, level: float
    ) -> dict[int, WordSet]:
        memories = [memory for memory, own in tested.items() if len(own.words) >= LEAST]
        random_sets = self.random_sets[content]
        if not memories or not len(random_sets.pool):
            return {}
        width = max(len(tested[memory].words) for memory in memories)
        folds = np.full((len(memories), width), -1)
        for row, memory in enumerate(memories):
            first = [words[0] for words in tested[memory].words]
            folds[row, : len(first)] = first
        active = folds >= 0
        chosen = np.where(active[:, :, None], self.vectors.vectors[folds], 0)
        clusters = cluster(chosen @ chosen.transpose(0, 2, 1), active)
        _, p_values = random_sets.p_values(clusters, active.sum(1))
        sets = {}
        for row in np.flatnonzero(p_values <= level).tolist():
            core, own = folds[row][set_bits(int(clusters.bits[row]))], ends[memories[row]]
            members = self._members(core, own, random_sets)
            word_set = _word_set(own, members, p_values[row], int(active[row].sum()))
            if max(own.bits[i].bit_count() for i in members) <= _DOMINANT * word_set.bits.bit_count():
                sets[memories[row]] = word_set
        return sets

    def _members(self, core: Array, ends: _Ends, random_sets: RandomSets) -> Array:
        """The words of a set, and the memory's other last words that are close to it."""
        first = np.array([words[0] for words in ends.words])
        vectors, inside = self.vectors.vectors[first], np.isin(first, core)
        others = np.where(inside[None, :] & ~np.eye(len(first), dtype=bool), vectors @ vectors.T, 0)
        mean = others.sum(1) / np.maximum(inside.sum() - inside, 1)
        return np.flatnonzero(inside | (mean > random_sets.joining_bound(self.vectors.vectors[core])))

    def is_explained(self, word_set: WordSet, forms: list[Shared], conditional: ConditionalBackground) -> bool:
        """Whether random words with a coarse form or a last token that nearly all of these words have would be as close."""
        for form in forms:
            if (
                not (form.form.coarse or form.form.name == "token")
                or (form.bits & word_set.bits).bit_count() < _EXPLAINED * word_set.bits.bit_count()
            ):
                continue
            content = bool(self.content[word_set.words[0]])
            key = form.form.name, form.code, content
            if key not in self._within_form:
                rows = conditional.rows(form.form, form.code, np.zeros(0, dtype=np.int64))
                self._within_form[key] = self._random_sets(rows, content=content, sets=500)
            random_sets = self._within_form[key]
            words = np.array(word_set.words)
            clusters = cluster(random_sets.similarity(words[None]), np.ones((1, len(words)), dtype=bool))
            if len(random_sets.pool) < word_set.tried:
                return True
            if random_sets.p_values(clusters, np.array([word_set.tried]))[1][0] > LEVEL:
                return True
        return False


def without_pieces(forms: list[Shared], sets: list[WordSet]) -> list[Shared]:
    """The forms without the single words of a set, and without the coarse forms that its words happen to have."""
    return [form for form in forms if not any(_is_piece(form, word_set.bits) for word_set in sets)]


def _is_piece(form: Shared, of: int) -> bool:
    count, inside = form.bits.bit_count(), (form.bits & of).bit_count()
    if form.form.coarse:
        return inside >= _EXPLAINED * count
    return form.form.family == "words" and inside == count


def _word_set(ends: _Ends, members: Array, p_value: float, tried: int) -> WordSet:
    bits, words = 0, []
    for i in members.tolist():
        bits |= ends.bits[i]
        values, counts = np.unique(ends.words[i], return_counts=True)
        words.append((-len(ends.words[i]), (ends.bits[i] & -ends.bits[i]).bit_length(), int(values[counts.argmax()])))
    return WordSet(bits, tuple(word for _, _, word in sorted(words)), float(p_value), tried)
