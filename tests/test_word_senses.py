"""Vectors of words and of prefixes, and sets of last words of related sense, in a made-up space of vectors."""

import math
from importlib.resources import files

import numpy as np
import pytest

from ffscope.patterns import word_vectors
from ffscope.patterns.candidates import Rates, find_candidates
from ffscope.patterns.clustering import RandomSets, unit_vectors
from ffscope.patterns.conditional_background import ConditionalBackground
from ffscope.patterns.forms import SHALLOW
from ffscope.patterns.semantic import Group, Layer, Sample, _merged
from ffscope.patterns.senses import Senses, WordSet, without_pieces
from ffscope.patterns.shallow import Shared, Triggers
from ffscope.patterns.subjects import Documents, SubjectWords
from ffscope.patterns.topics import cluster_documents
from ffscope.patterns.word_vectors import WordVectors, no_vectors
from word_prefixes import fold, prefixes_from

SETS = {
    "metals": [
        "zinc",
        "copper",
        "nickel",
        "silver",
        "bronze",
        "cobalt",
        "iron",
        "brass",
        "pewter",
        "chromium",
        "titanium",
    ],
    "rivers": ["danube", "rhine", "volga", "thames", "ganges", "nile", "elbe", "seine", "loire", "tiber"],
    "moods": [
        "wandering",
        "pondering",
        "grieving",
        "laughing",
        "weeping",
        "smiling",
        "sulking",
        "brooding",
    ],  # all end in -ing
}
FUNCTION = ["above", "below", "between", "under", "through", "before", "after", "during", "against", "into"]
STOP_WORDS = files("ffscope.report").joinpath("stop_words.txt").read_text(encoding="utf-8").split()
OTHER_FUNCTION = [word for word in STOP_WORDS if word.isalpha() and word not in FUNCTION]
FORMS = {form.name: form for form in SHALLOW}
WIDTH = 32


def random_words(generator, count, ending=""):
    letters = generator.choice(list("bcdfghjklmnpqrtvwxz"), (count, 7))
    return ["".join(word) + ending for word in letters]


class Space:
    """A sample of prefixes, each of two words, with vectors in which the words of a set are near each other."""

    def __init__(self, *, together=True):
        generator = self.generator = np.random.default_rng(0)
        self.random = random_words(generator, 1200)
        self.gerunds = random_words(generator, 40, "ing")  # near the moods if `together`
        names = [
            *SETS["metals"],
            *SETS["rivers"],
            *SETS["moods"],
            *self.gerunds,
            *FUNCTION,
            *OTHER_FUNCTION,
            *self.random,
        ]
        centres = unit_vectors(generator.normal(size=(4, WIDTH)))
        groups = [*SETS.values(), FUNCTION]
        centre = {word: centres[number] for number, words in enumerate(groups) for word in words}
        if together:
            centre |= dict.fromkeys(self.gerunds, centres[2])
        self.texts = [["w0", word] for word in generator.choice(names, 3000).tolist() + names]
        self.memories = []
        self.vector = {
            word: unit_vectors(
                centre.get(word, 0) + (0.5 / math.sqrt(WIDTH) if word in centre else 1) * generator.normal(size=WIDTH)
            )
            for word in names
        }

    def add(self, words):
        self.memories.append(list(words))

    def find(self):
        """The sample, the triggers of the memories, and what Senses finds in them."""
        every = [*self.texts, *(["w0", word] for words in self.memories for word in words)]
        prefixes = prefixes_from(every)
        sample = prefixes.take(np.arange(len(self.texts)))
        memory = np.repeat(np.arange(len(self.memories)), [len(words) for words in self.memories])
        bit = np.concatenate([np.arange(len(words)) for words in self.memories])
        triggers = Triggers(prefixes.take(np.arange(len(self.texts), len(every))), memory, bit)
        lexicon = prefixes.sentences.lexicon
        vectors = np.zeros((len(lexicon.folds), WIDTH), dtype=np.float32)
        for word, vector in self.vector.items():
            vectors[lexicon.folds.index(word)] = vector
        self.vectors = WordVectors(vectors, lexicon.content_folds & (np.abs(vectors).sum(1) > 0), senses=True)
        self.senses = Senses(sample, self.vectors, 0)
        self.lexicon, self.sample = lexicon, sample
        return triggers, self.senses.find(triggers)

    def words(self, word_set):
        return {self.lexicon.folds[word] for word in word_set.words}


def bits_where(words, members):
    return sum(1 << bit for bit, word in enumerate(words) if word in members)


# Vectors of prefixes


def test_the_vector_of_a_prefix_is_the_mean_of_its_content_words(monkeypatch):
    monkeypatch.setattr(word_vectors, "_PREFIXES", 7)
    generator = np.random.default_rng(1)
    names = [*random_words(generator, 30), "the", "of", "17", ","]
    texts = [generator.choice(names, generator.integers(0, 9)).tolist() for _ in range(60)] + [["the", "of", "the"]]
    prefixes = prefixes_from(texts)
    lexicon = prefixes.sentences.lexicon
    vectors = unit_vectors(generator.normal(size=(len(lexicon.folds), 5)))
    without = generator.random(len(vectors)) < 0.2
    vectors[without] = 0
    space = WordVectors(vectors, lexicon.content_folds & ~without, senses=True)
    means = space.of_prefixes(prefixes)
    assert means.shape == (61, 5)
    for text, mean in zip(texts, means, strict=True):
        own = [fold(prefixes, word) for word in text[:-1]]
        own = [vectors[word] for word in own if lexicon.content_folds[word] and not without[word]]
        np.testing.assert_allclose(mean, np.mean(own, 0) if own else np.zeros(5), atol=1e-6)
    assert not means[-1].any()
    assert space.of_prefixes(prefixes.take(np.zeros(0, dtype=int))).shape == (0, 5)
    assert not no_vectors(lexicon).of_prefixes(prefixes).any()


# Sets


@pytest.fixture(scope="module")
def spaces():
    space = Space()
    g = space.generator
    some = lambda words, count: g.choice(words, count).tolist()  # noqa: E731
    space.add([*SETS["metals"][:10], *some(space.random, 15)])  # 0
    space.add([*some(SETS["rivers"], 12), *some(space.random, 13)])  # 1
    space.add(["zinc"] * 14 + ["copper", "nickel", "silver", "iron"])  # 2: one word is most of it
    space.add([*FUNCTION[:8], *some(OTHER_FUNCTION, 12)])  # 3
    space.add([*FUNCTION[:8], *SETS["metals"][:8], *some(space.random, 9)])  # 4
    space.add([*SETS["metals"][:2], *some(space.random, 23)])  # 5: too few
    space.add(["zinc", "Zinc", "ZINC", *some(space.random, 22)])  # 6: one word in three spellings
    space.add(SETS["moods"] + some(space.random, 15))  # 7
    return space, *space.find()


def test_sets_of_related_last_words_are_found(spaces):
    space, _, sets = spaces
    for memory, name in ((0, "metals"), (1, "rivers")):
        (word_set,) = sets[memory]
        assert space.words(word_set) >= set(space.memories[memory]) & set(SETS[name])
        assert len(space.words(word_set) - set(SETS[name])) <= 6
        assert word_set.bits == bits_where(space.memories[memory], space.words(word_set))
        assert 0 < word_set.p_value <= 0.005
        counts = [space.memories[memory].count(space.lexicon.folds[word]) for word in word_set.words]
        assert counts == sorted(counts, reverse=True)


def test_a_dominant_word_is_no_set(spaces):
    assert 2 not in spaces[2]
    assert 6 not in spaces[2]


def test_two_related_words_are_no_set(spaces):
    assert 5 not in spaces[2]


def test_function_words_are_compared_with_function_words(spaces):
    space, _, sets = spaces
    (word_set,) = sets[3]
    assert space.words(word_set) >= set(FUNCTION[:8])
    assert word_set.bits.bit_count() <= 14
    content, function = sets[4]
    assert space.words(content) >= set(SETS["metals"][:8])
    assert space.words(function) == set(FUNCTION[:8])
    assert not content.bits & function.bits


def test_vectors_that_cannot_compare_last_words_give_no_sets(spaces):
    space, triggers, _ = spaces
    vectors = WordVectors(space.vectors.vectors, space.vectors.counted, senses=False)
    assert Senses(space.sample, vectors, 0).find(triggers) == {}
    assert Senses(space.sample, no_vectors(space.lexicon), 0).find(triggers) == {}


def test_random_words_are_hardly_ever_a_set():
    space = Space()
    names = [word for _, word in space.texts]
    for _ in range(800):
        space.add(space.generator.choice(names, 25).tolist())
    _, sets = space.find()
    assert len(sets) <= 16


def shared(name, code, bits):
    return Shared(FORMS[name], code, bits, 1e-9, 0.01, 0, (FORMS[name], code), bits)


def gerund_form(triggers, memory):
    """The shared ending -ing of a memory's triggers."""
    candidates = find_candidates(triggers.prefixes, triggers.memory, triggers.bit, SHALLOW, least=3)
    (row,) = np.flatnonzero(
        (candidates.memory == memory)
        & (candidates.form == SHALLOW.index(FORMS["ending 3"]))
        & (np.bitwise_count(candidates.bits) >= 8)
    )
    return shared("ending 3", int(candidates.code[row]), int(candidates.bits[row]))


@pytest.mark.parametrize("together", [True, False])
def test_a_set_is_explained_by_a_form_whose_words_are_as_close(together):
    """If all words in -ing are near each other, those of a memory are not a set beside them."""
    space = Space(together=together)
    space.add(SETS["moods"] + space.random[:15])
    triggers, sets = space.find()
    conditional = ConditionalBackground(space.sample, np.zeros((len(space.sample), 1), np.float32), 0)
    assert space.words(sets[0][0]) >= set(SETS["moods"])
    bits, form = bits_where(space.memories[0], SETS["moods"]), gerund_form(triggers, 0)
    word_set = WordSet(bits, tuple(fold(space.sample, word) for word in SETS["moods"]), 1e-6, 10)
    assert form.bits == bits
    assert space.senses.is_explained(word_set, [form], conditional) == together
    assert not space.senses.is_explained(word_set, [], conditional)
    assert not space.senses.is_explained(word_set, [shared("ending 3", form.code, 0b111)], conditional)
    assert not space.senses.is_explained(word_set, [shared("last word", form.code, form.bits)], conditional)
    unknown = shared("ending 3", 12345, form.bits)  # no prefix of the sample has it
    assert space.senses.is_explained(word_set, [unknown], conditional)


def test_forms_that_are_pieces_of_a_set_are_left_out():
    word_set = WordSet(0b1111110, (1, 2, 3), 1e-9, 6)
    inside, beyond = shared("last word", 1, 0b0001110), shared("last word", 2, 0b0000111)
    coarse, wide = shared("ending 3", 3, 0b1111100), shared("ending 3", 4, 0b1111 << 5 | 0b10)
    context, most = shared("1 before", 5, 0b1110), shared("class", 6, 0b1111101)
    forms = [inside, beyond, coarse, wide, context, most]
    assert without_pieces(forms, [word_set]) == [beyond, wide, context]
    assert without_pieces(forms, []) == forms


def test_random_sets_have_no_two_words_with_one_lemma():
    generator = np.random.default_rng(3)
    lemma = np.repeat(np.arange(50), 4)
    pool = np.concatenate([np.arange(200), np.repeat([0, 1, 2, 3], 10)])  # one lemma is most frequent
    random_sets = RandomSets(unit_vectors(generator.normal(size=(200, 8))), 0, pool, lemma)
    for size in (3, 12, 25):
        drawn = lemma[random_sets._draw(size)]
        assert drawn.shape == (2000, size)
        assert all(len(set(row)) == size for row in drawn.tolist())
    few = RandomSets(random_sets.vectors, 0, np.arange(8), lemma)._draw(5)  # two lemmas: words recur
    assert few.shape == (2000, 5)


# Names of subjects


def test_a_subject_is_named_by_the_words_nearest_to_it():
    generator = np.random.default_rng(4)
    names = random_words(generator, 20)
    texts = [
        [*generator.permutation([*names, "rivers", "river", "dams", "canals", "the"]).tolist(), "end"] for _ in range(6)
    ]
    texts.append(["rare", "dams", "the", "end"])
    prefixes = prefixes_from(texts)
    lexicon = prefixes.sentences.lexicon
    vectors = np.zeros((len(lexicon.folds), 21), dtype=np.float32)
    for number, word in enumerate(names):
        vectors[fold(prefixes, word), number] = 1
    for word, near in (("rivers", 0.9), ("river", 0.85), ("canals", 0.8), ("dams", 0.75), ("rare", 1.0)):
        vectors[fold(prefixes, word), [20, 0]] = near, math.sqrt(1 - near**2)
    words = SubjectWords(prefixes, WordVectors(vectors, lexicon.content_folds & (vectors.any(1)), senses=True))
    centre = np.eye(21, dtype=np.float32)[20] * 3
    # "dams" is in the prefix, and is 0.1 ahead; "river" is an inflection of "rivers"; "rare" occurs once
    assert words.describe(prefixes.take(np.array([6])), centre) == "rivers, dams, canals"
    assert words.describe(prefixes.take(np.zeros(0, dtype=int)), centre) == "rivers, canals, dams"


def test_without_vectors_a_subject_is_named_by_typical_words():
    generator = np.random.default_rng(5)
    names = random_words(generator, 40)
    texts = [[*generator.choice(names, 12).tolist(), "common", "the", "end"] for _ in range(300)]
    special = [
        ["glacier", "glaciers", *generator.choice(names, 4).tolist(), "moraine", "common", "the", "ice"]
        for _ in range(8)
    ]
    prefixes = prefixes_from([*texts, *special])
    words = SubjectWords(prefixes, no_vectors(prefixes.sentences.lexicon))
    group = prefixes.take(np.arange(300, 308))
    named = words.describe(group, np.zeros(1, np.float32)).split(", ")
    assert set(named) == {"glacier", "moraine", "ice"} or set(named) == {"glaciers", "moraine", "ice"}
    own, count = words._words_of(group)
    odds = dict(zip(own.tolist(), words._log_odds(own, count).tolist(), strict=True))
    word = fold(prefixes, "common")
    total, mean = words.counts.sum() + 1, (308 + 0.5) / (words.counts.sum() + 1) * 500
    here, there = 8 + mean, 308 + mean
    plain = math.log(here / (count.sum() + 500 - here)) - math.log(there / (total + 500 - there))
    assert odds[word] == pytest.approx(plain / math.sqrt(1 / here + 1 / there))


def test_a_group_that_grew_beyond_one_document_is_not_named_after_it():
    texts = [["the", "glacier", "and", "a", "moraine", "were", "there"]] * 12
    prefixes = prefixes_from(texts, documents=[*range(1, 9), 0, 0, 0, 0])
    documents = Documents(np.full(9, -1), [], [f"title {number}" for number in range(9)], [])
    zero = np.zeros((12, 1), dtype=np.float32)
    sample = Sample(
        Rates(prefixes, documents.forms()),
        documents,
        SubjectWords(prefixes, no_vectors(prefixes.sentences.lexicon)),
        RandomSets(zero, 0, np.arange(12)),
        ConditionalBackground(prefixes, zero, 0),
    )
    layer = Layer(Triggers(prefixes, np.zeros(12, dtype=int), np.arange(12)), zero, sample)
    document = Group(0b1111 << 8, 1e-9, "document", 8)
    assert layer._description(0, document) == "from one document, “title 0”"
    groups = _merged([document, Group((1 << 12) - 1, 1e-4, "words")])
    assert [layer._description(0, group).startswith("from one document") for group in groups] in (
        [False],
        [True, False],
    )
    assert layer._description(0, Group((1 << 12) - 1, 1e-9, "document", 8)).startswith("about: ")


def test_documents_without_vectors_have_no_topics():
    prefixes = prefixes_from([["the", "of"], ["glacier", "end"]])
    vectors = np.zeros((len(prefixes.sentences.lexicon.folds), 4), dtype=np.float32)
    for counted in (np.zeros(len(vectors), dtype=bool), np.ones(len(vectors), dtype=bool)):
        assert cluster_documents(prefixes.sentences, WordVectors(vectors, counted, senses=True), 2, seed=0) == []
