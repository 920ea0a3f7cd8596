"""The patterns of memories over made-up documents: what each is called, and that nothing else decides it."""

import re

import numpy as np
import pyarrow.parquet as pq
import pytest

from ffscope.analysis import patterns as analysis
from ffscope.engines.local import LocalEngine
from ffscope.patterns.clustering import unit_vectors
from ffscope.patterns.word_vectors import WordVectors
from ffscope.study.folder import Study
from planted import by_hand, make_tokenizer, prefixes_of

SUBJECTS = [
    ["violin", "cello", "sonata", "opera", "melody", "chord", "flute", "quartet", "tenor", "piano", "hymn", "rhythm"],
    ["glacier", "moraine", "iceberg", "fjord", "tundra", "snowfield", "crevasse", "avalanche", "permafrost", "sleet"],
    ["senate", "ballot", "statute", "treaty", "governor", "parliament", "veto", "decree", "minister", "campaign"],
    ["enzyme", "protein", "membrane", "nucleus", "ribosome", "gene", "antibody", "hormone", "bacterium", "tissue"],
    ["engine", "piston", "turbine", "gearbox", "axle", "throttle", "valve", "bearing", "crankshaft", "clutch"],
    ["orchard", "harvest", "plough", "barley", "pasture", "meadow", "tractor", "seedling", "vineyard", "stable"],
]
BEGINNINGS = ["Then", "Here", "There", "Once", "Where", "Again", "Now", "While"]  # function words
PLAIN = ["place", "people", "report", "letter", "visit", "question", "table", "corner", "morning", "colour", "window"]
WIDTH = 24
LONG = r"^(\w+ ){9,}\w+$"


def document(generator, subject):
    return " ".join(_sentence(generator, SUBJECTS[subject % len(SUBJECTS)]) for _ in range(4))


def _sentence(generator, words):
    first, second, third, fourth = generator.choice(words, 4, replace=False)
    part, place, thing = generator.choice(PLAIN, 3, replace=False)
    number = generator.choice([f"{generator.integers(21, 99)}", part, part])
    year = "1850" if generator.random() < 0.03 else f"{generator.integers(1500, 2000)}"
    clauses = [
        f"the {first} {place}",
        f"had about {number} {second} parts",
        f"near a {third} and that {fourth} {thing}",
        f"with {generator.integers(21, 99)} others",
        f"in {year}",
        *generator.choice(["as ever", "for now", "it seems"], generator.integers(0, 3), replace=False),
    ]
    return f"{generator.choice(BEGINNINGS)} {' '.join(generator.permutation(clauses))}."


class Memories:
    """Triggers of memories: prefixes that match a regular expression, one per sentence, in random order."""

    def __init__(self, folder):
        generator = np.random.default_rng(0)
        self.texts = [document(generator, number) for number in range(192)]
        self.tokenizer = make_tokenizer(self.texts, size=1500)
        self.folder, self.generator = folder, np.random.default_rng(1)
        study = by_hand(folder / "text", self.texts, [[]], tokenizer=self.tokenizer)
        rows = pq.read_table(study.path("sentences.parquet")).to_pylist()
        self.document = {row["sentence"]: row["document"] for row in rows}
        self.length = {row["sentence"]: len(row["ends"]) for row in rows}
        self.prefixes = prefixes_of(study)
        after = {(row["sentence"], i): row["text"][end : end + 1] for row in rows for i, end in enumerate(row["ends"])}
        self.whole = {place for place, text in self.prefixes if not (text[-1:].isalnum() and after[place].isalnum())}

    def ending(self, shape, count=25, subject=None, documents=None):
        places = [place for place, text in self.prefixes if place in self.whole and re.search(shape, text)]
        if subject is not None:
            places = [place for place in places if self.document[place[0]] % len(SUBJECTS) == subject]
        if documents is not None:
            places = [place for place in places if self.document[place[0]] in documents]
        places = [places[number] for number in self.generator.permutation(len(places))]
        chosen = list(dict(places).items())[:count]
        assert len(chosen) == count, (shape, len(chosen))
        return chosen

    def rows(self, name, fires, monkeypatch, **options):
        """The rows of the table, with vectors in which the words of a subject are near each other."""
        study = by_hand(self.folder / name, self.texts, fires, tokenizer=self.tokenizer)
        with monkeypatch.context() as patch, Study.adding(study.folder) as opened:
            patch.setattr(analysis, "_word_vectors", lambda _, __, meanings, entry, ___: vectors(meanings, entry))
            analysis.find_patterns(opened, LocalEngine(), encoder="model", **options)
        return pq.read_table(study.path("patterns.parquet")).to_pylist()


def vectors(meanings, entry):
    meanings.saved(entry)
    lexicon, generator = meanings.prefixes.sentences.lexicon, np.random.default_rng(2)
    space = generator.normal(size=(len(lexicon.folds), WIDTH))
    for words, centre in zip(SUBJECTS, 2 * generator.normal(size=(len(SUBJECTS), WIDTH)), strict=True):
        space[[lexicon.folds.index(word) for word in words]] += centre
    return WordVectors(unit_vectors(space), lexicon.content_folds.copy(), senses=True)


@pytest.fixture(scope="module")
def memories(tmp_path_factory):
    return Memories(tmp_path_factory.mktemp("rows"))


FIRES = {
    "finer": lambda m: [*m.ending(r" in 1850$", 12), *m.ending(r" in (1[5-79]..|18[0-46-9].)$", 13)],
    "combined": lambda m: m.ending(r" about \d+$"),
    "before": lambda m: m.ending(r" (near|and|with) (the|a|\d+)$"),
    "selective": lambda m: m.ending(r" parts$", 10),
    "one document": lambda m: m.ending(r"\w$", 4, documents={7}) + m.ending(r"\w$", 4, documents=range(20, 192)),
    "document in a subject": lambda m: (
        m.ending(LONG, 4, documents={7}) + m.ending(LONG, 14, subject=1, documents=range(20, 192))
    ),
    "short": lambda m: m.ending(r"^\w+ \w+ \w+( \w+)?$", 20, subject=3) + m.ending(r"\w$", 5),
    "subject": lambda m: m.ending(LONG, 20, subject=1) + m.ending(r"\w$", 5),
    "set": lambda m: m.ending(rf" ({'|'.join(SUBJECTS[4])})$", 16) + m.ending(r"\w$", 9),
    "two words in turn": lambda m: [
        p for pair in zip(m.ending(" cello$", 12), m.ending(" fjord$", 12), strict=True) for p in pair
    ],
    "six words": lambda m: [
        p
        for word in ("cello", "fjord", "veto", "gene", "axle", "plough", "hymn", "sleet")
        for p in m.ending(f" {word}$", 3)
    ],
    "random": lambda m: m.ending(r"\w$"),
    "none": lambda m: [],
}


@pytest.fixture(scope="module")
def fires(memories):
    return [list(dict(make(memories)).items()) for make in FIRES.values()]


@pytest.fixture(scope="module")
def rows(memories, fires):
    with pytest.MonkeyPatch.context() as patch:
        return memories.rows("first", fires, patch)


def of(rows, name):
    return [row for row in rows if row["memory"] == list(FIRES).index(name)]


def descriptions(rows, name):
    return [row["description"] for row in of(rows, name)]


def test_a_word_that_recurs_within_a_class_is_named_too(rows):
    assert [(row["description"], row["support"]) for row in of(rows, "finer")] == [
        ("ends with a year", 25),
        ("ends with “1850”", 12),
    ]


def test_a_class_after_a_word_is_one_pattern(rows):
    assert descriptions(rows, "combined") == ["ends with a number after “about”"]


def test_a_memory_that_fires_on_few_prefixes_with_a_form_fires_in_some_contexts(rows):
    """A memory with fewer triggers than others fires nowhere else."""
    (row,) = of(rows, "selective")
    assert row["description"] == "ends with “parts”, in some contexts"
    assert row["firing_share"] == pytest.approx(10 / (4 * 192), rel=0.05)
    assert not any("contexts" in description for description in descriptions(rows, "finer"))


def test_prefixes_of_one_document(rows, fires, memories):
    (description,) = descriptions(rows, "one document")
    assert description.startswith("from one document about: ")
    named = [row for row in rows if "one document" in row["description"]]
    for row in named:
        places = [fires[row["memory"]][rank - 1] for rank in row["covers"]]
        assert len({memories.document[sentence] for sentence, _ in places}) == 1


def test_a_short_prefix_says_nothing_about_its_subject(rows):
    semantic = [row for row in of(rows, "short") if row["kind"] == "semantic"]
    assert semantic
    assert all(row["description"].startswith("from documents about: ") for row in semantic)
    named = re.findall(r"\w+", semantic[0]["description"].partition(": ")[2])
    assert set(named) <= set(SUBJECTS[3])


def test_a_subject_is_found_and_named(rows):
    subject = next(row for row in of(rows, "subject") if row["description"].startswith("about: "))
    assert set(range(1, 21)) - set(subject["covers"]) == set()
    assert set(re.findall(r"\w+", subject["description"].partition(": ")[2])) <= set(SUBJECTS[1])


def test_a_set_replaces_its_words(rows):
    (row,) = of(rows, "set")
    assert row["kind"] == "semantic"
    assert len(set(re.findall("“(.+?)”", row["description"])) & set(SUBJECTS[4])) >= 4
    assert set(range(1, 17)) <= set(row["covers"])


def test_random_prefixes_have_no_pattern(rows):
    assert of(rows, "random") == of(rows, "none") == []


def by_memory(rows, order):
    """The rows of each memory by its number in FIRES."""
    return [[{**row, "memory": 0} for row in rows if row["memory"] == place] for place in order]


@pytest.mark.parametrize("block", [1, 3, 4096])
def test_the_order_of_memories_and_the_size_of_blocks_change_nothing(memories, fires, rows, block, monkeypatch):
    order = np.random.default_rng(block).permutation(len(fires))
    monkeypatch.setattr(analysis, "_BLOCK", block)
    again = memories.rows(f"block{block}", [fires[number] for number in order], monkeypatch)
    assert by_memory(again, np.argsort(order)) == by_memory(rows, range(len(fires)))
