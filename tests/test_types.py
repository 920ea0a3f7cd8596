"""The stage `types`: every column compared with a plain computation, and memories whose types are planted."""

import json
import logging
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers as hf

import tiny
from ffscope.engines.ray.engine import RayEngine
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.models.loading import make_memory_model
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, triggers
from ffscope.queries.layer import layer_page
from ffscope.queries.search import SearchQuery, search
from ffscope.queries.tables import reading
from ffscope.queries.types import type_examples, types_panel
from ffscope.report import type_examples as examples_module
from ffscope.report import types as types_module
from ffscope.report.drawing import titled
from ffscope.report.series import Source
from ffscope.stages.types import TYPE_NAMES, TypeOptions
from ffscope.study.resumable_table import ResumableTable
from ffscope.study.schemas import SCHEMAS
from in_process_pool import InProcessPool
from plain import Plain, make

BOS, POSITIONS = 2, 6
OPTIONS = {
    "type_firings": 3,
    "type_positions": POSITIONS,
    "type_position_sentences": 9,
    "type_ngrams": 8,
    "type_coverage": 0.8,
    "type_presence": 0.6,
}
COVERAGE, PRESENCE = Fraction(4, 5), Fraction(3, 5)
SEARCHING = SearchOptions(top=5, batch_tokens=300)
CASES = [
    (name, "norm") for name in ("gpt2", "llama", "qwen2_moe", "gemma2", "opt post-norm", "bert", "t5", "adaptive_lm")
]
CASES += [("gemma2", "raw"), ("adaptive_lm untied", "norm")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Sentences of few words and different lengths; every twentieth document is held out."""
    generator = np.random.default_rng(3)
    file = tmp_path_factory.mktemp("corpus") / "text.jsonl"
    words = ["ab", "ba", "b", "cab", "a"]
    with file.open("w") as out:
        for length in generator.integers(1, 6, 44):
            print(json.dumps({"text": " ".join(generator.choice(words, length)).capitalize() + "."}), file=out)
    return file


def rows_of(study, table="types"):
    return pq.read_table(study.path(f"{table}.parquet")).to_pylist()


def searched(model, corpus, folder, search=SEARCHING):
    return triggers(model, CorpusOptions(str(corpus), max_tokens=12), folder, search=search)


def write_effects(study, sizes):
    """Tables as the stage `effects` would write them: (direct_size, norm_size) by memory, (3, 1) by default; nothing else."""
    names = [(row["layer"], row["memory"]) for row in rows_of(study, "memories")]
    direct, norm = zip(*(sizes.get(name, (3.0, 1.0)) for name in names), strict=True)
    columns = {"layer": [layer for layer, _ in names], "memory": [memory for _, memory in names]}
    columns |= {"direct_size": direct, "norm_size": norm}
    schema = SCHEMAS["effects.parquet"]
    others = {name: [None] * len(names) for name in schema.names if name not in columns}
    pq.write_table(pa.table({**columns, **others}, schema), study.path("effects.parquet"))
    for file in ("exact_effects.parquet", "effect_groups.parquet"):
        pq.write_table(SCHEMAS[file].empty_table(), study.path(file))
    study.finish("effects", {}, seconds=0.0)
    return study


def typed(model, corpus, folder, search=SEARCHING, **options):
    study = searched(model, corpus, folder, search)
    write_effects(study, {})
    return analyse("types", model, study.folder, **{**OPTIONS, **options})


class Case:
    """One model's study, and the same quantities computed slowly."""

    def __init__(self, study, plain):
        self.study, self.plain = study, plain
        self.rows = rows_of(study)
        self.texts = [row["tokens"] for row in rows_of(study, "sentences") if not row["held_out"]]
        runs = [plain.run(text) for text in self.texts]
        # By layer and sentence: position × memory.
        self.coefficients = [
            [layer.coefficients(run)[-len(text) :] for run, text in zip(runs, self.texts, strict=True)]
            for layer in plain.layers
        ]

    @property
    def some_rows(self):
        """Rows of every layer, each with whether its memory fires, sentence by sentence and position by position."""
        for row in self.rows[:: 1 if self.plain.name == "gpt2" else 5]:
            coefficients = [sentence[:, row["memory"]] for sentence in self.coefficients[row["layer"]]]
            if all(((numbers == 0) | (numbers.abs() > 1e-6)).all() for numbers in coefficients):  # not within rounding
                yield row, [(numbers > 0).tolist() for numbers in coefficients]

    def ngrams(self, fires, n):
        """How often a memory fires on each n-gram, and how often each occurs."""
        fired, occurs = Counter(), Counter()
        for text, fires_here in zip(self.texts, fires, strict=True):
            for position in range(n - 1, len(text)):
                ngram = tuple(text[position - n + 1 : position + 1])
                occurs[ngram] += 1
                fired[ngram] += fires_here[position]
        return +fired, occurs


@pytest.fixture(scope="module")
def of(corpus, tokenizer, tmp_path_factory):
    cases = {}

    def case(name, lens):
        if (name, lens) not in cases:
            hf_model = make(name)
            folder = tmp_path_factory.mktemp("case") / "study"
            study = typed(make_memory_model(hf_model, tokenizer), corpus, folder, lens=lens)
            cases[name, lens] = Case(study, Plain(name, hf_model, lens=lens, bos=BOS))
        return cases[name, lens]

    return case


@pytest.fixture
def case(request, of):
    return of(*request.param)


over = pytest.mark.parametrize("case", CASES, indirect=True, ids=", ".join)


def cover(fired):
    """The smallest set of n-grams with enough of the firings."""
    total, ngrams, held = sum(fired.values()), [], 0
    for ngram, count in sorted(fired.items(), key=lambda pair: (-pair[1], pair[0])):
        if held >= COVERAGE * total:
            break
        held += count
        ngrams.append(ngram)
    return ngrams


@over
def test_ngrams_that_cover_firings_are_counted_as_one_by_one(case):
    for row, fires in case.some_rows:
        detected = {}
        for n, name in enumerate(("unigrams", "bigrams", "trigrams"), start=1):
            fired, occurs = case.ngrams(fires, n)
            ngrams, enough = cover(fired), sum(fired.values()) >= OPTIONS["type_firings"]
            assert row[name] == (len(ngrams) if enough else None)
            always = all(fired[ngram] >= PRESENCE * occurs[ngram] for ngram in ngrams)
            if enough and always and len(ngrams) <= OPTIONS["type_ngrams"]:
                detected[n] = [token for ngram in ngrams for token in ngram]
        assert row["firings"] == sum(map(sum, fires))
        assert row["ngram"] == min(detected, default=None)
        assert row["detected"] == detected.get(row["ngram"])
        known = row["firings"] >= OPTIONS["type_firings"]
        assert row["token_detector"] is ((row["ngram"] == 1) if known else None)
        assert row["ngram_detector"] is ((row["ngram"] in (2, 3)) if known else None)


def test_the_compared_models_have_detectors_of_every_length(of):
    rows = [row for name in ("gpt2", "opt post-norm", "adaptive_lm") for row in of(name, "norm").rows]
    assert {row["ngram"] for row in rows} == {1, 2, 3, None}


@over
def test_mutual_information_is_that_of_the_papers_formula(case):
    long = [number for number, text in enumerate(case.texts) if len(text) >= POSITIONS]
    for row, fires in case.some_rows:
        shares = [sum(fires[number][position] for number in long) / len(long) for position in range(POSITIONS)]
        total = sum(shares) / POSITIONS
        terms = [(share, total) for share in shares] + [(1 - share, 1 - total) for share in shares]
        information = sum(share * math.log(share / whole) for share, whole in terms if share) / POSITIONS
        assert row["mutual_information"] == pytest.approx(information, abs=1e-6)
        assert row["positional_memory"] is (information > 0.05)
    assert case.study.manifest["stages"]["types"]["position_sentences"] == len(long) >= 9


def moments(numbers):
    mean = sum(numbers) / len(numbers)
    central = [sum((number - mean) ** power for number in numbers) / len(numbers) for power in (2, 3, 4)]
    return central[0], central[1] / central[0] ** 1.5, central[2] / central[0] ** 2


@over
def test_values_are_described_by_the_moments_of_their_logits(case):
    counts = Counter(token for text in case.texts for token in text)
    tokens = sorted(counts)
    for layer, group in enumerate(case.plain.layers):
        rows = [row for row in case.rows if row["layer"] == layer]
        written = group.written(group.values).detach()
        norms, variances = written.norm(dim=-1).tolist(), []
        for row, value, logits in zip(rows, written, case.plain.value_logits(layer), strict=True):
            _, skew, kurtosis = moments(logits)
            with torch.no_grad():
                variance, _, _ = moments(case.plain.updates(value / value.norm()).tolist())
            variances.append(variance)
            assert row["skew"] == pytest.approx(skew, rel=1e-3, abs=1e-4)
            assert row["kurtosis"] == pytest.approx(kurtosis, rel=1e-3)
            assert row["logit_variance"] == pytest.approx(variance, rel=1e-3)
            correlation = np.corrcoef(
                [logits[token] for token in tokens], [math.log(counts[token]) for token in tokens]
            )
            assert row["frequency_correlation"] == pytest.approx(correlation[0, 1], abs=1e-4)
            assert row["promoter"] is (kurtosis > 10 and skew > 0)
            assert row["suppressor"] is (kurtosis > 10 and skew < 0)
            assert row["token_frequency"] is (abs(row["frequency_correlation"]) >= 0.5)
            if row["token_detector"]:
                below = [logits[token] < sum(logits) / len(logits) for token in row["detected"]]
                assert row["suppressed"] == pytest.approx(sum(below) / len(below))
                assert row["suppresses_token"] is (sum(below) > len(below) / 2)
            else:
                assert row["suppressed"] is None
        for row, norm, variance in zip(rows, norms, variances, strict=True):
            assert row["norm"] == pytest.approx(norm, rel=1e-4)
            lower = sum(other < norm for other in norms) / len(norms)
            flatter = sum(other < variance for other in variances) / len(variances)
            assert row["norm_percentile"] == pytest.approx(lower, abs=1e-6)
            assert row["variance_percentile"] == pytest.approx(flatter, abs=1e-6)
            assert row["through_norm"] == 0.25
            assert row["entropy"] is False


@over
def test_every_searched_memory_has_one_row_whose_text_names_its_types(case):
    rows, memories = case.rows, rows_of(case.study, "memories")
    assert [(row["layer"], row["memory"]) for row in rows] == [(row["layer"], row["memory"]) for row in memories]
    for row, memory in zip(rows, memories, strict=True):
        assert row["dead"] is (memory["maximum"] <= 0)
        assert row["types"] == (", ".join(name for column, name in TYPE_NAMES.items() if row[column]) or "none")


# Planted types. The residual has a dimension for each token, each position and each previous token, and the attention copies the
# previous token. `lm_head` reads the dimensions of tokens alone.

PLACES = 33
WIDTH = 2 * tiny.VOCAB + PLACES + 1
POSITION, PREVIOUS = tiny.VOCAB, tiny.VOCAB + PLACES
DEAD, SUPPRESSING, COPYING, BIGRAM, EARLY, PROMOTER, SUPPRESSOR, FREQUENCY, ENTROPY = range(9)
EXPECTED = {
    DEAD: "dead",
    SUPPRESSING: "token detector, suppresses its tokens",
    COPYING: "token detector",
    BIGRAM: "n-gram detector",
    EARLY: "positional",
    PROMOTER: "promoter",
    SUPPRESSOR: "suppressor",
    FREQUENCY: "token frequency",
    ENTROPY: "entropy",
}
PLANTED = {
    "type_position_sentences": 50,
    "type_positions": 16,
    "type_correlation": 0.8,
    "type_norm": 0.95,
    "type_variance": 0.05,
}
MEMORIES = 40


@pytest.fixture(scope="module")
def letters(tmp_path_factory):
    """Text of letters, most of them rarer than the one before: `ab` in half of the cases where there is an `a`."""
    generator = np.random.default_rng(0)
    file = tmp_path_factory.mktemp("letters") / "text.jsonl"
    frequency = 0.85 ** np.arange(20)
    texts = [
        "".join(generator.choice(list("abcdefghijklmnopqrst"), 24, p=frequency / frequency.sum())) for _ in range(160)
    ]
    file.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    return file


def previous_token_attention(block, scale):
    """Set a block's attention to copy the previous token into dimensions of its own."""
    block.attn.c_attn.weight.zero_()
    block.attn.c_attn.bias.zero_()
    block.attn.c_proj.weight.zero_()
    block.attn.c_proj.bias.zero_()
    query, key, value = block.attn.c_attn.weight.split(WIDTH, dim=1)
    for place in range(PLACES):
        query[POSITION + place, place] = 3.0
        key[POSITION + place, min(place + 1, PLACES - 1)] = 3.0
    for token in range(tiny.VOCAB):
        value[token, token] = 1.0
        block.attn.c_proj.weight[token, PREVIOUS + token] = scale


@pytest.fixture(scope="module")
def planted(letters, tokenizer, tmp_path_factory):
    """A study of a GPT-2 in whose only layer memories of every type are planted, and others are random."""
    config = hf.GPT2Config(
        vocab_size=tiny.VOCAB,
        n_embd=WIDTH,
        n_inner=MEMORIES,
        n_layer=1,
        n_head=1,
        n_positions=PLACES,
        activation_function="relu",
        tie_word_embeddings=False,
        bos_token_id=BOS,
        eos_token_id=3,
    )
    model = hf.GPT2LMHeadModel(config).eval()
    ids = tokenizer.convert_tokens_to_ids
    generator = torch.Generator().manual_seed(1)
    text = Counter("".join(json.loads(line)["text"] for line in letters.read_text().splitlines()))
    with torch.no_grad():
        model.transformer.wte.weight.copy_(torch.eye(tiny.VOCAB, WIDTH))
        model.transformer.wpe.weight.zero_()
        model.transformer.wpe.weight[:, POSITION : POSITION + PLACES] = torch.eye(PLACES)
        model.lm_head.weight.copy_(torch.eye(tiny.VOCAB, WIDTH))
        (block,) = model.transformer.h
        previous_token_attention(block, scale=(2 / WIDTH) ** 0.5)
        keys, biases, values = block.mlp.c_fc.weight, block.mlp.c_fc.bias, block.mlp.c_proj.weight
        keys.zero_()
        keys[: tiny.VOCAB] = torch.randn(tiny.VOCAB, MEMORIES, generator=generator)
        biases.zero_()
        values.zero_()
        values[:, : tiny.VOCAB] = torch.randn(MEMORIES, tiny.VOCAB, generator=generator)
        detects(keys, biases, DEAD, [], -1.0)
        for memory, letter, sign in ((SUPPRESSING, "c", -1), (COPYING, "d", 1)):
            detects(keys, biases, memory, [ids(letter)], -4.0)
            values[memory, ids(letter)] = 2.0 * sign
        detects(keys, biases, BIGRAM, [ids("b"), PREVIOUS + ids("a")], -10.0)
        detects(keys, biases, EARLY, list(range(POSITION + 1, POSITION + 6)), -4.0)
        values[[PROMOTER, SUPPRESSOR], : tiny.VOCAB] *= 0.01
        values[PROMOTER, ids("e")], values[SUPPRESSOR, ids("f")] = 1.0, -1.0
        for letter, count in text.items():
            values[FREQUENCY, ids(letter)] = math.log(count)
        values[ENTROPY] = 0.0
        values[ENTROPY, POSITION:PREVIOUS] = 20 * torch.randn(PLACES, generator=generator)
    memory_model = make_memory_model(model, tokenizer)
    study = triggers(memory_model, CorpusOptions(str(letters)), tmp_path_factory.mktemp("planted") / "study")
    write_effects(study, {(0, ENTROPY): (0.1, 0.9), (0, PROMOTER): (0.1, 0.9)})
    analyse("values", memory_model, study.folder)
    return analyse("types", memory_model, study.folder, **PLANTED)


def detects(keys, biases, memory, dimensions, bias):
    """Let a memory fire where the normalised residual is high in these dimensions."""
    keys[:, memory], biases[memory] = 0.0, bias
    keys[dimensions, memory] = 1.0


def test_planted_types_are_recovered_and_no_others(planted, tokenizer):
    rows = rows_of(planted)
    assert {row["memory"]: row["types"] for row in rows} == {
        memory: EXPECTED.get(memory, "none") for memory in range(MEMORIES)
    }
    detected = {row["memory"]: tokenizer.convert_ids_to_tokens(row["detected"] or []) for row in rows}
    assert detected[SUPPRESSING] == ["c"]
    assert detected[COPYING] == ["d"]
    assert detected[BIGRAM] == ["a", "b"]
    assert rows[SUPPRESSING]["suppressed"] == 1
    assert rows[COPYING]["suppressed"] == 0
    assert rows[DEAD]["token_detector"] is None
    early = 5 / 16
    information = -early * math.log(early) - (1 - early) * math.log(1 - early)  # all of the firing's entropy
    assert rows[EARLY]["mutual_information"] == pytest.approx(information, abs=1e-6)


def test_a_memory_that_needs_the_token_before_is_no_token_detector(planted):
    row = rows_of(planted)[BIGRAM]
    assert (row["unigrams"], row["bigrams"]) == (1, 1)  # it fires on no other token, but not on every `b`
    assert (row["token_detector"], row["ngram"]) == (False, 2)


def test_the_panel_names_what_decides(planted):
    panel = types_panel(planted, Memory(0, BIGRAM))
    answers = {row[0]: row[-1] for row in panel["rows"]}
    assert set(answers) == set(TYPE_NAMES.values())
    assert [name for name, answer in answers.items() if answer == "yes"] == ["n-gram detector"]
    assert panel["more"]["rows"] == [["a b"]]
    assert all(len(row) == len(panel["heads"]) == len(panel["kinds"]) for row in panel["rows"])
    assert ["positional", "information on position, nats", "0.621", "> 0.05", "yes"] in types_panel(
        planted, Memory(0, EARLY)
    )["rows"]
    assert types_panel(planted, Memory(0, DEAD))["rows"][1][2:] == ["–", "≤ 5", "unknown"]


def test_memories_are_searched_by_type(planted):
    matches = search(planted, SearchQuery.parse({"token_detector": "yes", "sort": "-kurtosis"}))
    assert {match.memory for match in matches.rows} == {f"L0.{SUPPRESSING}", f"L0.{COPYING}"}
    assert {match.measures["types"] for match in matches.rows} == {EXPECTED[SUPPRESSING], EXPECTED[COPYING]}
    for name in list(TYPE_NAMES)[1:]:
        assert search(planted, SearchQuery.parse({name: "yes"})).count == 1 + (name == "token_detector")
    assert layer_page(planted, 0).columns["types"][ENTROPY] == "entropy"


def test_the_figure_and_the_examples_show_the_planted_memories(planted):
    with reading(planted) as tables:
        entry = {**types_module.FIGURE.series(Source(tables, "types")), "model_layers": 1}
        rows = type_examples(tables, 5)
        shown = examples_module.FIGURE.sentence(examples_module.FIGURE.series(Source(tables, "type_examples")))
    assert entry["counts"] == {**dict.fromkeys(TYPE_NAMES, 1), "token_detector": 2}
    assert entry["series"]["token_detector"]["value"] == [2 / MEMORIES]
    assert entry["series"]["token_detector"]["high"][0] > 2 / MEMORIES
    sentence = types_module.FIGURE.sentence(entry)
    assert sentence.startswith(f"Of {MEMORIES} memories: dead 1 (most in layer 0: 2.5 %); token detector 2")
    findings = {finding.finding: finding for finding in types_module.FIGURE.findings(entry)}
    assert findings["Token detectors whose value suppresses the tokens they detect"].model == "50 % of 2"
    assert len(titled(types_module.FIGURE.chart(entry), "types")["concat"]) == len(TYPE_NAMES)
    examples = {(row["type"], row["memory"]): row for row in rows}
    assert examples["n-gram detector", f"L0.{BIGRAM}"]["tokens"] == "a b"
    assert examples["promoter", f"L0.{PROMOTER}"]["tokens"].startswith("e | ")
    assert examples["suppressor", f"L0.{SUPPRESSOR}"]["tokens"].startswith("f | ")
    assert examples["entropy", f"L0.{ENTROPY}"]["quantity"] == "90 % of its effect runs through the final norm"
    assert shown.startswith("The clearest examples of 8 types, up to 5 of each: 8 memories.")


def test_groups_of_layers_and_parts_of_layers_give_the_same_table(corpus, tokenizer, tmp_path, monkeypatch):
    model = make_memory_model(make("qwen2_moe"), tokenizer)
    whole = typed(model, corpus, tmp_path / "whole")
    monkeypatch.setattr("ffscope.analysis.types._MOST_BITS", 1500)  # so that few memories are counted at a time
    parts = []
    monkeypatch.setattr("ffscope.study.resumable_table.ResumableTable.write_part", spying(parts))
    split = typed(model, corpus, tmp_path / "split")
    assert len(parts) > len(model.memories)
    assert rows_of(split) == rows_of(whole)


def spying(numbers):
    write = ResumableTable.write_part

    def write_part(self, number, columns):
        numbers.append(number)
        write(self, number, columns)

    return write_part


def test_a_cluster_gives_the_same_table(corpus, tokenizer, tmp_path, monkeypatch):
    model = make_memory_model(make("gpt2"), tokenizer)
    local = typed(model, corpus, tmp_path / "local")
    study = write_effects(searched(model, corpus, tmp_path / "pool"), {})
    monkeypatch.setattr("ffscope.analysis.types._MOST_BITS", 1500)
    pool = RayEngine(InProcessPool(model, seed=3), "tiny")
    assert rows_of(analyse("types", pool, study.folder, **OPTIONS)) == rows_of(local)


def test_a_restricted_search_has_rows_for_its_memories_only(corpus, tokenizer, tmp_path):
    model = make_memory_model(make("gpt2"), tokenizer)
    chosen = SearchOptions(top=5, batch_tokens=300, layers="1-2", memories="3-12")
    part, whole = typed(model, corpus, tmp_path / "part", chosen), typed(model, corpus, tmp_path / "whole")
    expected = [row for row in rows_of(whole) if row["layer"] >= 1 and 3 <= row["memory"] <= 12]
    assert rows_of(part) == expected


def test_a_sample_is_drawn_by_the_seed(corpus, tokenizer, tmp_path):
    model = make_memory_model(make("gpt2"), tokenizer)
    study = typed(model, corpus, tmp_path / "study", type_sentences=15, type_position_sentences=5)
    again = typed(model, corpus, tmp_path / "again", type_sentences=15, type_position_sentences=5)
    entry = study.manifest["stages"]["types"]
    assert entry["sampled_sentences"] == 15
    assert max(row["firings"] for row in rows_of(study)) <= entry["sampled_prefixes"]
    assert rows_of(study) == rows_of(again)


def test_a_text_with_few_long_sentences_compares_fewer_positions_or_none(corpus, tokenizer, tmp_path, caplog):
    model = make_memory_model(make("gpt2"), tokenizer)
    shorter = typed(model, corpus, tmp_path / "shorter", type_positions=1000)
    positions = shorter.manifest["stages"]["types"]["positions"]
    assert positions <= 12
    assert f"over the first {positions} positions only" in caplog.text
    none = typed(model, corpus, tmp_path / "none", type_position_sentences=1000)
    assert none.manifest["stages"]["types"]["positions"] is None
    assert {row["positional_memory"] for row in rows_of(none)} == {None}
    assert "No memory can be called positional: expected 1000 sentences" in caplog.text


def test_without_effects_entropy_memories_are_unknown(corpus, tokenizer, tmp_path, caplog):
    model = make_memory_model(make("gpt2"), tokenizer)
    study = searched(model, corpus, tmp_path / "study")
    with caplog.at_level(logging.WARNING):
        analyse("types", model, study.folder, **OPTIONS)
    assert "Run `ffscope effects` first." in caplog.text
    assert {(row["through_norm"], row["entropy"]) for row in rows_of(study)} == {(None, None)}
    with reading(study) as tables:
        entry = types_module.FIGURE.series(Source(tables, "types"))
    assert entry["unknown"] == ["entropy"]
    assert types_module.FIGURE.sentence(entry).count("Not determined in this study: entropy.") == 1


def test_a_model_without_unembedding_has_types_by_firings_alone(corpus, tokenizer, tmp_path):
    _, config_class, arguments = tiny.TABLE["gpt2"]
    model = make_memory_model(tiny.build(hf.GPT2Model, config_class, arguments), tokenizer)
    rows = rows_of(typed(model, corpus, tmp_path / "study"))
    for name in (
        "skew",
        "kurtosis",
        "frequency_correlation",
        "logit_variance",
        "promoter",
        "token_frequency",
        "entropy",
    ):
        assert {row[name] for row in rows} == {None}
    assert all(row["norm"] > 0 for row in rows)
    assert any(row["unigrams"] for row in rows)


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ({"type_ngrams": 0}, "type_ngrams is 0. Expected 1 to 100."),
        ({"type_coverage": 1.5}, "type_coverage is 1.5. Expected 0.5 to 1."),
        ({"type_sentences": 0}, "type_sentences is 0. Expected at least 1."),
        ({"type_positions": 1}, "type_positions is 1. Expected at least 2."),
        ({"type_through_norm": -1}, "type_through_norm is -1. Expected 0 to 1."),
    ],
)
def test_options_out_of_range_are_refused(option, expected):
    with pytest.raises(InputError, match=expected.replace(".", r"\.")):
        TypeOptions(**option)
