"""The stages after the search, every number of their tables compared with a plain computation (plain.py)."""

import copy
import gc
import itertools
import json
import math
import shutil
import weakref
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from functools import cache, cached_property

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
import transformers as hf

import studies
import tiny
from ffscope.analysis.mutation import _random
from ffscope.errors import CorpusError, LensError, StudyError
from ffscope.models.lenses import base
from ffscope.models.loading import make_memory_model
from ffscope.models.ranking import rank_of, ranked, top
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, run, triggers
from ffscope.search import example_pass
from ffscope.search.prefix_sharing import share_prefixes
from ffscope.study.folder import Study
from ffscope.study.resumable_table import ResumableTable
from ffscope.study.schemas import SCHEMAS
from plain import BOTH_WAYS, FAMILIES, Account, Pass, Plain, bert_layers, make, ranking

TEXT = "The cat sat. On a mat, it saw the dog! Why? A bird flew by <and> sang [a song] / of old. It was late."
WORDS = TEXT.split()
STAGES = ("values", "agreement", "mutation", "composition", "refinement")
SEARCHING = SearchOptions(top=5, batch_tokens=300)
STAGE_OPTIONS = {**studies.SMALL, "examples": 24, "mutation_triggers": 3}
TABLES = ("values", "agreement", "mutation", "examples", "composition", "refinement", "last_layer")
REMOVED = {"first", "last", "random"}
BOS = 2


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Twenty-two documents of few words, so that prefixes recur, each with a sentence of one token. Number 19 is held out."""
    generator = torch.Generator().manual_seed(5)
    file = tmp_path_factory.mktemp("corpus") / "text.jsonl"
    with file.open("w") as out:
        for number in range(22):
            picks = torch.randint(len(WORDS), (36 if number == 19 else 12,), generator=generator).tolist()
            print(json.dumps({"text": " ".join(WORDS[i] for i in picks) + f"\n{chr(97 + number)}"}), file=out)
    return file


def read_rows(study, table):
    return pq.read_table(study.path(f"{table}.parquet")).to_pylist()


def close(number):
    return pytest.approx(number, rel=1e-4, abs=1e-6)


def searched(model, corpus, folder, search=SEARCHING):
    return triggers(model, CorpusOptions(str(corpus), max_tokens=12), folder, search=search)


def analysed(model, corpus, folder, search=SEARCHING, stages=STAGES, **options):
    study = searched(model, corpus, folder, search)
    for stage in stages:
        study = analyse(stage, model, study.folder, **{**STAGE_OPTIONS, **options})
    return study


def all_at_once(model, corpus, folder, search=SEARCHING, **options):
    with pytest.MonkeyPatch.context() as patch:
        # Patterns and the report have tests of their own.
        patch.setattr("ffscope.analysis.patterns.run", lambda *_: None)
        patch.setattr("ffscope.pipeline._report", lambda *_: None)
        return run(model, CorpusOptions(str(corpus), max_tokens=12), folder, search=search, **STAGE_OPTIONS, **options)


class Case:
    """One family's study, and the plain computation beside it."""

    def __init__(self, study, plain):
        self.study, self.plain = study, plain
        self.rows = {table: read_rows(study, table) for table in TABLES}
        self.sentences = {row["sentence"]: row for row in read_rows(study, "sentences")}
        self.triggers = defaultdict(list)
        for row in read_rows(study, "triggers"):
            self.triggers[row["layer"], row["memory"]].append(row)

    @cached_property
    def value_logits(self):
        return [self.plain.value_logits(layer) for layer in range(len(self.plain.layers))]

    @cached_property
    def opposite_logits(self):
        return [self.plain.value_logits(layer, sign=-1) for layer in range(len(self.plain.layers))]

    @cached_property
    def places(self):
        """What the model holds at every example, by one pass for each."""
        return [
            self.plain.at(self.sentences[row["sentence"]]["tokens"], row["position"]) for row in self.rows["examples"]
        ]

    @property
    def examples_by_layers(self):
        """The rows that a table must have, in their order: every example's place and number, and every layer."""
        return [(place, number, layer) for number, place in enumerate(self.places) for layer in self.every_layer]

    @property
    def every_layer(self):
        return range(len(self.plain.layers))


NO_BOS = replace(SEARCHING, bos=False)
SEARCHES = {"gpt2": replace(NO_BOS, prefixes="all"), "bart": NO_BOS}  # the others as in SEARCHING
NORM = [(name, "norm") for name in FAMILIES]
RAW = [(name, "raw") for name in ("opt", "llama", "gemma2", "granite", "bert", "adaptive_lm", "adaptive_lm untied")]


def over(cases):
    return pytest.mark.parametrize("case", cases, indirect=True, ids=", ".join)


@pytest.fixture(scope="module")
def cases(corpus, tokenizer, tmp_path_factory):
    @cache
    def of(name, lens):
        hf_model, folder, searching = make(name), tmp_path_factory.mktemp("case"), SEARCHES.get(name, SEARCHING)
        study = all_at_once(make_memory_model(hf_model, tokenizer), corpus, folder / "study", searching, lens=lens)
        return Case(study, Plain(name, hf_model, lens=lens, bos=BOS if searching.bos else None))

    return of


@pytest.fixture
def case(request, cases):
    return cases(*request.param)


def softmax(logits):
    return torch.tensor(logits).double().softmax(-1).tolist()


@over(NORM + RAW)
def test_values_are_the_rows_of_the_output_projection_read_over_the_vocabulary(case):
    account, rows = Account(), iter(case.rows["values"])
    for layer in case.every_layer:
        for memory, (value, logits) in enumerate(
            zip(case.plain.layers[layer].values, case.value_logits[layer], strict=True)
        ):
            row, probabilities = next(rows), softmax(logits)
            assert (row["layer"], row["memory"]) == (layer, memory)
            assert row["norm"] == close(math.sqrt(sum(x * x for x in value.tolist())))
            assert len(row["top_tokens"]) == len(row["top_probs"]) == len(row["bottom_tokens"]) == 20
            account.tokens(row["top_tokens"], logits)
            account.tokens(row["bottom_tokens"], [-logit for logit in logits])
            assert row["top_probs"] == [close(probabilities[token]) for token in row["top_tokens"]]
            assert row["max_prob"] == close(max(probabilities))
    assert next(rows, None) is None
    assert account.is_strict()


@over(NORM + RAW)
def test_agreement_compares_every_value_with_its_triggers(case):
    account = Account()
    assert [(row["layer"], row["memory"]) for row in case.rows["agreement"]] == sorted(case.triggers)
    for row in case.rows["agreement"]:
        logits, rows = case.value_logits[row["layer"]][row["memory"]], case.triggers[row["layer"], row["memory"]]
        (first,) = [trigger for trigger in rows if trigger["rank"] == 1]
        account.token(row["top_token"], logits)
        account.rank(row["next_rank"], row["next_token"], logits)
        assert row["next_token"] == first["next_token"]
        assert row["agrees"] is (row["next_token"] == row["top_token"])
        assert row["max_prob"] == close(max(softmax(logits)))
        assert row["triggers"] == len(rows)
        assert row["precision"] == close(sum(trigger["next_token"] == row["top_token"] for trigger in rows) / len(rows))
    assert account.is_strict()


@over(NORM)
def test_mutation_takes_some_memories_of_every_layer_and_every_trigger_of_more_than_one_token(case):
    by_trigger = defaultdict(list)
    for row in case.rows["mutation"]:
        by_trigger[row["layer"], row["memory"], row["rank"]].append(row["removed"])
    assert list(by_trigger) == sorted(by_trigger)
    assert all(removed == sorted(REMOVED) for removed in by_trigger.values())
    names = {(layer, memory) for layer, memory, _ in by_trigger}
    wanted = {
        (*name, row["rank"]) for name in names for row in case.triggers[name] if row["rank"] <= 3 and row["position"]
    }
    assert set(by_trigger) == wanted
    assert names
    assert max(Counter(layer for layer, _ in names).values()) <= STAGE_OPTIONS["mutation_memories"]


@over(NORM)
def test_mutation_says_how_many_tokens_were_run(case):
    before = int(case.plain.bos is not None)
    texts = [tuple(text) for _, _, text in mutations(case)]
    begun = {text[:length] for text in texts for length in range(1, len(text))}
    runs = set(texts) if case.plain.name in BOTH_WAYS else set(texts) - begun
    stage = case.study.manifest["stages"]["mutation"]
    assert stage["plain_tokens"] == sum(len(text) + before for text in texts)
    assert stage["forward_tokens"] == sum(len(text) + before for text in runs)


def without(tokens, index):
    return tokens[:index] + tokens[index + 1 :]


def mutations(case):
    """Every row with its trigger and the tokens that are left."""
    for row in case.rows["mutation"]:
        (trigger,) = [
            candidate for candidate in case.triggers[row["layer"], row["memory"]] if candidate["rank"] == row["rank"]
        ]
        prefix = case.sentences[trigger["sentence"]]["tokens"][: trigger["position"] + 1]
        yield row, trigger, without(prefix, row["removed_index"])


@over(NORM)
def test_a_mutated_coefficient_is_that_of_the_prefix_run_again_without_the_token(case):
    for row, trigger, left in mutations(case):
        index = row["removed_index"]
        assert 0 <= index <= trigger["position"] == len(left)
        assert index == {"first": 0, "last": trigger["position"]}.get(row["removed"], index)
        coefficients = case.plain.layers[row["layer"]].coefficients(case.plain.run(left))
        assert row["coefficient"] == trigger["coefficient"]
        assert row["mutated"] == close(coefficients[-1, row["memory"]].item())
        assert row["change"] == close((row["mutated"] - row["coefficient"]) / row["coefficient"])


@over(NORM + RAW)
def test_examples_are_held_out_prefixes_with_the_models_own_prediction(case):
    account = Account()
    rows = case.rows["examples"]
    assert [row["example"] for row in rows] == list(range(STAGE_OPTIONS["examples"]))
    assert len({(row["sentence"], row["position"]) for row in rows}) == len(rows)
    for row, place in zip(rows, case.places, strict=True):
        sentence, position = case.sentences[row["sentence"]], row["position"]
        assert sentence["held_out"]
        assert row["target"] == [*sentence["tokens"], sentence["next_token"]][position + 1]
        assert row["text"] == sentence["text"][: sentence["ends"][position]]
        account.token(row["prediction"], place.logits)
    assert account.is_strict()


def effective(sizes):
    """How many of the largest sizes make nine tenths of their sum, and whether rounding could change that."""
    total, held, count = sum(sizes), 0.0, 0
    for size in sorted(sizes, reverse=True):
        if held >= 0.9 * total:
            break
        held, count = held + size, count + 1
    smallest = sorted(sizes, reverse=True)[count - 1] if count else 0.0
    return count, min(held - 0.9 * total, 0.9 * total - (held - smallest)) < 1e-6 * total


@over(NORM + RAW)
def test_composition_counts_what_is_active_and_what_agrees_with_the_sum(case):
    account = Account()
    for row, (place, example, layer) in zip(case.rows["composition"], case.examples_by_layers, strict=True):
        assert (row["example"], row["layer"]) == (example, layer)
        coefficients = place.coefficients[layer].tolist()
        near_zero = sum(0 < abs(m) < 1e-6 for m in coefficients)
        account.count(row["active"], sum(m > 0 for m in coefficients), unsure=near_zero)
        assert row["active_fraction"] == close(row["active"] / len(coefficients))
        norms = case.plain.layers[layer].values.norm(dim=-1).tolist()
        count, unsure = effective([abs(m) * norm for m, norm in zip(coefficients, norms, strict=True)])
        account.same(row["effective"], count, excuse=unsure)
        account.token(row["ff_top"], place.update[layer])
        matches, unsure = matching(case.value_logits[layer], case.opposite_logits[layer], coefficients, row["ff_top"])
        account.count(row["matches"], matches, unsure=unsure + near_zero)
    assert account.is_strict()


def matching(value_logits, opposite_logits, coefficients, ff_top):
    """How many memories promote a token, and for how many rounding could change that."""
    matches = unsure = 0
    for m, logits, opposite in zip(coefficients, value_logits, opposite_logits, strict=True):
        promoted = logits if m > 0 else opposite
        first, second = ranking(promoted)[:2]
        matches += m != 0 and first == ff_top
        unsure += m != 0 and ff_top in (first, second) and promoted[first] - promoted[second] < 1e-5
    return matches, unsure


@over(NORM + RAW)
def test_refinement_says_which_component_determines_the_output(case):
    account = Account()
    for row, (place, example, layer) in zip(case.rows["refinement"], case.examples_by_layers, strict=True):
        assert (row["example"], row["layer"]) == (example, layer)
        residual, prediction = place.residual[layer], case.rows["examples"][example]["prediction"]
        account.token(row["residual_top"], residual)
        account.token(row["ff_top"], place.update[layer])
        account.token(row["output_top"], place.output[layer])
        account.rank(row["residual_rank"], prediction, residual)
        assert row["residual_prob"] == close(softmax(residual)[prediction])
        of_residual, of_ff = (row[name] == row["output_top"] for name in ("residual_top", "ff_top"))
        cases = {(1, 1): "agreement", (1, 0): "residual", (0, 1): "ffn", (0, 0): "composition"}
        assert row["case"] == cases[of_residual, of_ff]
    assert account.is_strict()


@over(NORM + RAW)
def test_the_last_layers_composition_cases_are_compared_with_the_unembedding(case):
    bound = case.study.manifest["stages"]["refinement"]["related_above"]
    last = len(case.plain.layers) - 1
    composed = [row for row in case.rows["refinement"] if row["layer"] == last and row["case"] == "composition"]
    assert len(composed) <= 100  # so all of them are there
    for row, other in zip(case.rows["last_layer"], composed, strict=True):
        before, after = row["residual_top"], row["output_top"]
        assert (row["example"], before, after) == (other["example"], other["residual_top"], other["output_top"])
        u, v = (case.plain.family.unembedding[token].tolist() for token in (before, after))
        cosine = sum(a * b for a, b in zip(u, v, strict=True)) / math.hypot(*u) / math.hypot(*v)
        assert row["similarity"] == close(cosine)
        assert row["related"] is (row["similarity"] > bound)


def test_large_numbers_of_composition_cases_are_sampled(llama, whole, begun, monkeypatch):
    monkeypatch.setattr("ffscope.analysis.refinement.SAMPLED", 1)
    analyse("refinement", llama, begun, **STAGE_OPTIONS)
    drawn, everyone = read_rows(Study.open(begun), "last_layer"), read_rows(whole, "last_layer")
    assert len(drawn) == 1 < len(everyone)
    assert drawn == [row for row in everyone if row in drawn]


@over([("opt", "norm"), ("bert", "raw")])
def test_related_tokens_are_more_alike_than_nearly_all_pairs_of_them(case):
    bound = case.study.manifest["stages"]["refinement"]["related_above"]
    last = [row for row in case.rows["refinement"] if row["layer"] == len(case.plain.layers) - 1]
    pairs = itertools.product((row["residual_top"] for row in last), (row["output_top"] for row in last))
    rows = torch.nn.functional.normalize(case.plain.family.unembedding, dim=-1)
    alike = [(rows[token] @ rows[other]).item() for token, other in pairs if token != other]
    assert sum(cosine > bound + 1e-6 for cosine in alike) < 0.06 * len(alike)
    assert sum(cosine > bound - 1e-6 for cosine in alike) > 0.04 * len(alike)


@pytest.fixture(scope="module")
def llama(tokenizer):
    return make_memory_model(tiny.make("llama"), tokenizer)


@pytest.fixture(scope="module")
def before(llama, corpus, tmp_path_factory):
    """A study that has its triggers and nothing more."""
    return searched(llama, corpus, tmp_path_factory.mktemp("before") / "study")


@pytest.fixture
def begun(before, tmp_path):
    return shutil.copytree(before.folder, tmp_path / "study")


@pytest.fixture(scope="module")
def whole(llama, before, tmp_path_factory):
    """A study whose stages were not interrupted."""
    folder = shutil.copytree(before.folder, tmp_path_factory.mktemp("whole") / "study")
    for stage in STAGES:
        study = analyse(stage, llama, folder, **STAGE_OPTIONS)
    return study


def change_manifest(folder, section, name, value):
    manifest = json.loads((folder / "study.json").read_text())
    manifest[section][name] = value
    (folder / "study.json").write_text(json.dumps(manifest))


def differences(study, other):
    """The tables that are not the same bytes, and the files that only one of two studies has."""
    names = [{path.name for path in either.folder.iterdir()} for either in (study, other)]
    return [table for table in TABLES if not same_bytes(study, other, table)] + sorted(names[0] ^ names[1])


def same_bytes(study, other, table):
    return study.path(f"{table}.parquet").read_bytes() == other.path(f"{table}.parquet").read_bytes()


def stopping_at(call):
    count = itertools.count(1)

    def stop(_):
        if next(count) == call:
            raise KeyboardInterrupt

    return stop


def test_stages_that_are_stopped_again_and_again_end_with_the_same_bytes(llama, whole, begun, monkeypatch):
    monkeypatch.setattr("ffscope.analysis.mutation._PART", 50)
    kept, keep = defaultdict(list), ResumableTable.write_part
    monkeypatch.setattr(
        ResumableTable, "write_part", lambda self, *part: kept[self.table].append(part[0]) or keep(self, *part)
    )
    for stage in STAGES:
        for call in itertools.count(1):
            with suppress(KeyboardInterrupt):
                analyse(stage, llama, begun, **STAGE_OPTIONS, progress=stopping_at(call))
                break
        assert call > 2
    for table, numbers in kept.items():
        assert len(numbers) > 2, f"{table} has no parts to be stopped between"
        assert sorted(numbers) == list(range(len(numbers))), "what was put by is not made again"
    assert differences(Study.open(begun), whole) == []


@pytest.mark.parametrize(
    "at", [(Study, "finish"), (ResumableTable, "join"), (ResumableTable, "drop")], ids=lambda at: at[1]
)
def test_stages_that_are_stopped_at_their_ends_end_with_the_same_bytes(at, llama, whole, begun, monkeypatch):
    usual, stopped = getattr(*at), set()

    def stopping(self, *args, **named):
        table = self.table if isinstance(self, ResumableTable) else args[0]
        if table not in stopped:
            stopped.add(table)
            raise KeyboardInterrupt
        return usual(self, *args, **named)

    monkeypatch.setattr(*at, stopping)
    for stage in STAGES:
        for _ in range(4):  # the examples and the stage are each stopped once
            with suppress(KeyboardInterrupt):
                analyse(stage, llama, begun, **STAGE_OPTIONS)
    assert len(stopped) == len(STAGES) + (at[1] == "finish")  # and the examples; agreement is made in one go
    assert differences(Study.open(begun), whole) == []


def _interrupted(*_, **__):
    raise KeyboardInterrupt


def test_partial_results_with_other_settings_are_not_used(llama, whole, begun, monkeypatch):
    monkeypatch.setattr("ffscope.analysis.mutation._PART", 50)
    for stage, options, call in (
        ("mutation", {"mutation_memories": 7}, 3),
        ("refinement", {"examples": 5, "lens": "raw"}, 2),
    ):
        with pytest.raises(KeyboardInterrupt):
            analyse(stage, llama, begun, **{**STAGE_OPTIONS, **options}, progress=stopping_at(call))
    for stage in STAGES:
        analyse(stage, llama, begun, **STAGE_OPTIONS)
    assert differences(Study.open(begun), whole) == []


def test_a_finished_stage_is_not_done_again_nor_with_other_settings(llama, whole, monkeypatch):
    monkeypatch.setattr(ResumableTable, "write_part", _interrupted)
    stamps = {path.name: path.stat().st_mtime_ns for path in whole.folder.iterdir()}
    others = {
        "values": {"lens": "raw"},
        "agreement": {"lens": "raw"},
        "mutation": {"mutation_triggers": 2},
        "composition": {"examples": 31},
        "refinement": {"lens": "raw"},
    }
    for stage, other in others.items():
        analyse(stage, llama, whole.folder)  # with what it was made with
        (name, value) = next(iter(other.items()))
        with pytest.raises(StudyError, match=f"is a study with {name} = .*; this run has .*{value}"):
            analyse(stage, llama, whole.folder, **other)
    assert stamps == {path.name: path.stat().st_mtime_ns for path in whole.folder.iterdir()}


@pytest.mark.parametrize(("first", "second"), [("values", "refinement"), ("refinement", "values")])
def test_two_lenses_are_not_mixed_in_a_study(first, second, llama, begun):
    analyse(first, llama, begun, **STAGE_OPTIONS, lens="norm")
    with pytest.raises(StudyError, match='is a study with lens = "norm"; this run has "raw"'):
        analyse(second, llama, begun, **STAGE_OPTIONS, lens="raw")
    assert Study.open(begun).settings["lens"] == "norm"


def alike(rows, others):
    for row, other in zip(rows, others, strict=True):
        assert list(row) == list(other)
        for name, value in row.items():
            several = value if isinstance(value, list) else [value]
            inexact = several and isinstance(several[0], float)
            assert value == (close(other[name]) if inexact else other[name])
    return True


@pytest.mark.parametrize("tokens", [1, 37, 5000])
def test_another_batch_size_gives_the_same(tokens, llama, whole, begun):
    change_manifest(begun, "settings", "batch_tokens", tokens)  # the search stays: equal triggers may change places
    for stage in STAGES:
        analyse(stage, llama, begun, **STAGE_OPTIONS)
    assert all(alike(read_rows(Study.open(begun), table), read_rows(whole, table)) for table in TABLES)


def test_few_examples_and_values_at_once_give_the_same(llama, whole, begun, monkeypatch):
    monkeypatch.setattr(example_pass, "_MAX_COEFFICIENTS", 3 * 4 * sum(llama.memories))
    monkeypatch.setattr(base, "_LOGITS", 5 * 4 * tiny.VOCAB)
    for stage in STAGES:
        analyse(stage, llama, begun, **STAGE_OPTIONS)
    assert all(alike(read_rows(Study.open(begun), table), read_rows(whole, table)) for table in TABLES)


def test_memory_of_a_pass_is_freed_before_the_next(llama, whole, begun, monkeypatch):
    views, most = weakref.WeakSet(), []
    states = example_pass.states_of
    monkeypatch.setattr(example_pass, "states_of", lambda *args: most.append(len(views)) or states(*args))
    init = example_pass.View.__init__
    monkeypatch.setattr(example_pass.View, "__init__", lambda self, *args: views.add(self) or init(self, *args))
    gc.collect()
    gc.disable()
    try:
        for stage in ("values", "composition"):
            analyse(stage, llama, begun, **STAGE_OPTIONS)
    finally:
        gc.enable()
    assert max(most) <= 1, "the collector comes by seldom, and a batch's coefficients are large"


def test_all_stages_at_once_give_the_same_bytes(llama, corpus, whole, tmp_path):
    folder = shutil.copytree(whole.folder, tmp_path / "one by one")
    for stage in ("effects", "types"):
        one_by_one = analyse(stage, llama, folder, **STAGE_OPTIONS)
    study = all_at_once(llama, corpus, tmp_path / "study")
    assert differences(study, one_by_one) == []
    assert all(same_bytes(study, one_by_one, table) for table in ("effects", "exact_effects", "effect_groups", "types"))


def test_columns_are_those_of_the_schemas(whole):
    for table in TABLES:
        assert pq.read_schema(whole.path(f"{table}.parquet")).equals(SCHEMAS[f"{table}.parquet"])


def test_asking_for_more_memories_and_examples_than_exist_uses_all(llama, begun, caplog):
    for stage in ("values", "mutation", "composition"):
        analyse(stage, llama, begun, examples=10_000, mutation_memories=1000, mutation_triggers=1000)
    study = Study.open(begun)
    long = {(row["layer"], row["memory"], row["rank"]) for row in read_rows(study, "triggers") if row["position"] > 0}
    assert {(row["layer"], row["memory"], row["rank"]) for row in read_rows(study, "mutation")} == long
    held_out = [row for row in read_rows(study, "sentences") if row["held_out"]]
    prefixes = [(row["sentence"], position) for row in held_out for position in range(len(row["tokens"]))]
    assert [(row["sentence"], row["position"]) for row in read_rows(study, "examples")] == prefixes
    assert (
        f"The held-out text has only {len(prefixes)} prefixes; all are used as examples, instead of 10000"
        in caplog.text
    )


def test_some_layers_and_memories_alone(llama, corpus, whole, tmp_path):
    searching = replace(SEARCHING, layers=[0, 2], memories=[2, 3, 11])
    study = analysed(llama, corpus, tmp_path / "study", searching, mutation_memories=100)
    names = [(layer, memory) for layer in (0, 2) for memory in (2, 3, 11)]
    for table in ("examples", "composition", "refinement", "last_layer"):
        assert read_rows(study, table) == read_rows(whole, table)
    for row, other in zip(read_rows(study, "values"), read_rows(whole, "values"), strict=True):
        rank = row.pop("next_rank")  # of a trigger, which only searched memories have
        assert rank == (other["next_rank"] if (row["layer"], row["memory"]) in names else None)
        assert row == {name: value for name, value in other.items() if name != "next_rank"}
    assert read_rows(study, "agreement") == [
        row for row in read_rows(whole, "agreement") if (row["layer"], row["memory"]) in names
    ]
    assert {(row["layer"], row["memory"]) for row in read_rows(study, "mutation")} == set(names)


def test_a_corpus_of_single_tokens_has_no_mutations(llama, tmp_path):
    (tmp_path / "a.txt").write_text("a\nb\nc\n")
    study = analysed(llama, tmp_path / "a.txt", tmp_path / "study", stages=["values", "agreement", "mutation"])
    assert read_rows(study, "triggers")
    assert read_rows(study, "mutation") == []


def test_a_decoders_start_token_takes_a_position_too(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("a" * 60)
    study = triggers(
        make_memory_model(tiny.make("bart"), tokenizer),
        CorpusOptions(str(tmp_path / "a.txt")),
        tmp_path / "study",
        search=NO_BOS,
    )
    assert [len(row["tokens"]) for row in read_rows(study, "sentences")] == [tiny.POSITIONS - 1]


def test_precision_is_the_share_of_all_the_triggers_a_memory_has(corpus, tokenizer, tmp_path):
    hf_model = tiny.make("opt")
    spaces = hf_model.lm_head.weight[tokenizer.convert_tokens_to_ids("Ġ")]
    with torch.no_grad():  # every value promotes the space, which follows every word
        hf_model.model.decoder.layers[1].fc2.weight.copy_(spaces[:, None].expand(12, 22))
    folder, searching = tmp_path / "study", replace(SEARCHING, top=100)
    study = analysed(
        make_memory_model(hf_model, tokenizer), corpus, folder, searching, ["values", "agreement"], lens="raw"
    )
    following = defaultdict(list)
    for row in read_rows(study, "triggers"):
        following[row["layer"], row["memory"]].append(row["next_token"])
    rows = [row for row in read_rows(study, "agreement") if row["layer"] == 1]
    for row in rows:
        tokens = following[1, row["memory"]]
        assert row["precision"] == close(tokens.count(row["top_token"]) / len(tokens))
        assert row["agrees"] is (tokens[0] == row["top_token"])
    assert {row["agrees"] for row in rows} == {True, False}
    assert sum(0 < row["precision"] < 1 and row["triggers"] < 100 for row in rows) > 5


def test_where_the_text_ends_without_a_token_nothing_agrees(corpus, tokenizer, tmp_path):
    endless = copy.deepcopy(tokenizer)
    endless.eos_token = None
    study = analysed(
        make_memory_model(tiny.make("opt"), endless), corpus, tmp_path / "study", stages=["values", "agreement"]
    )
    rows = read_rows(study, "agreement")
    assert any(row["next_token"] == -1 for row in rows)
    assert all((row["next_rank"] is None) == (row["next_token"] == -1) for row in rows)
    assert not any(row["agrees"] for row in rows if row["next_token"] == -1)


def test_a_vocabulary_of_fewer_than_twenty_tokens(tokenizer, tmp_path):
    hf_model = tiny.build(hf.LlamaForCausalLM, hf.LlamaConfig, {**tiny._LLAMA, "vocab_size": 12})
    (tmp_path / "a.txt").write_text("abc cab\nbag face")  # the first letters, whose ids are below 12
    study = analysed(
        make_memory_model(hf_model, tokenizer), tmp_path / "a.txt", tmp_path / "study", stages=["values", "agreement"]
    )
    for row in read_rows(study, "values"):
        assert sorted(row["top_tokens"]) == sorted(row["bottom_tokens"]) == list(range(12))
        assert sum(row["top_probs"]) == pytest.approx(1)


@pytest.fixture(scope="module")
def headless():
    return tiny.build(hf.BertModel, hf.BertConfig, tiny._BERT)


@pytest.fixture(scope="module")
def unread(headless, corpus, tokenizer, tmp_path_factory):
    stages = ["values", "mutation", "composition"]
    return analysed(
        make_memory_model(headless, tokenizer), corpus, tmp_path_factory.mktemp("headless") / "study", stages=stages
    )


def test_without_unembedding_values_have_norms_and_no_tokens(headless, unread):
    layers = bert_layers(headless, "")
    for row in read_rows(unread, "values"):
        assert row.pop("norm") == close(layers[row.pop("layer")].values[row.pop("memory")].norm().item())
        assert set(row.values()) == {None}


def test_without_unembedding_mutations_are_read(headless, unread):
    layers = bert_layers(headless, "")
    sentences = {row["sentence"]: row["tokens"] for row in read_rows(unread, "sentences")}
    prefixes = {
        (row["layer"], row["memory"], row["rank"]): sentences[row["sentence"]][: row["position"] + 1]
        for row in read_rows(unread, "triggers")
    }
    for row in read_rows(unread, "mutation"):
        prefix = prefixes[row["layer"], row["memory"], row["rank"]]
        forward_pass = Pass(headless, input_ids=[BOS, *without(prefix, row["removed_index"])])
        assert row["mutated"] == close(layers[row["layer"]].coefficients(forward_pass)[-1, row["memory"]].item())


def test_without_unembedding_composition_counts_and_reads_nothing(headless, unread):
    account, layers = Account(), bert_layers(headless, "")
    sentences = {row["sentence"]: row["tokens"] for row in read_rows(unread, "sentences")}
    examples = read_rows(unread, "examples")
    for row in read_rows(unread, "composition"):
        example = examples[row["example"]]
        forward_pass = Pass(headless, input_ids=[BOS, *sentences[example["sentence"]]])
        coefficients = layers[row["layer"]].coefficients(forward_pass)[1 + example["position"]]
        sizes = coefficients.abs() * layers[row["layer"]].values.norm(dim=-1)
        count, unsure = effective(sizes.tolist())
        account.same(row["active"], sum(m > 0 for m in coefficients.tolist()), excuse=False)
        account.same(row["effective"], count, excuse=unsure)
        assert (row["ff_top"], row["matches"], example["prediction"]) == (None, None, None)


@pytest.mark.parametrize("stage", ["agreement", "refinement"])
def test_without_unembedding_stages_that_need_it_say_so(stage, headless, unread, tokenizer):
    with pytest.raises(LensError, match="odel has no unembedding"):
        analyse(stage, make_memory_model(headless, tokenizer), unread.folder, **STAGE_OPTIONS)
    assert not unread.path(f"{stage}.parquet").exists()


def test_without_unembedding_a_whole_run_leaves_that_out_and_says_why(headless, unread, corpus, tokenizer, tmp_path):
    other = all_at_once(make_memory_model(headless, tokenizer), corpus, tmp_path / "study")
    for name in ("values", "mutation", "examples", "composition"):
        assert same_bytes(other, unread, name)
    for name in ("agreement", "refinement"):
        assert "no unembedding" in other.manifest["stages"][name]["why"]
        assert not other.has(name)


def test_without_held_out_documents_there_are_no_examples(llama, tmp_path):
    (tmp_path / "a.txt").write_text("One document. It is searched.")
    study = analysed(llama, tmp_path / "a.txt", tmp_path / "study", stages=["values"])
    for stage in ("composition", "refinement"):
        with pytest.raises(CorpusError, match="There are no held-out examples: .* --held-out FILE"):
            analyse(stage, llama, study.folder)
    assert not study.path("examples.parquet").exists()


def test_a_stage_needs_the_one_it_builds_on(llama, begun, tmp_path):
    for stage in ("agreement", "composition"):
        with pytest.raises(StudyError, match="has no values yet. Run `ffscope values` on it first"):
            analyse(stage, llama, begun, **STAGE_OPTIONS)
    for stage in STAGES:
        with pytest.raises(StudyError, match="is not a study.*Create one with `ffscope run`"):
            analyse(stage, llama, tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()


def test_every_stage_needs_the_triggers(llama, begun):
    change_manifest(begun, "stages", "triggers", {"done": False})
    for stage in STAGES:
        with pytest.raises(StudyError, match="has no triggers yet. Run `ffscope triggers` on it first"):
            analyse(stage, llama, begun, **STAGE_OPTIONS)


def test_unknown_stages_and_lenses(llama, begun):
    with pytest.raises(
        StudyError, match="There is no stage 'valves'. The stages after the search are: values, agreement"
    ):
        analyse("valves", llama, begun)
    for stage in ("values", "refinement"):
        with pytest.raises(LensError, match="There is no lens 'none'"):
            analyse(stage, llama, begun, lens="none")


def chi_square(counts, expected):
    return sum((count - expected) ** 2 / expected for count in counts)


@pytest.mark.parametrize("position", [1, 6, 30])
def test_the_random_token_is_any_of_the_prefix_with_the_same_chance(position):
    sentences = np.arange(40_000, dtype=np.int32)
    for seed in (0, 1, 12345):
        drawn = _random(sentences, np.full(len(sentences), position), seed)
        counts = np.bincount(drawn, minlength=position + 1)
        assert len(counts) == position + 1
        assert chi_square(counts, len(sentences) / len(counts)) < position + 6 * math.sqrt(2 * position)


def test_the_random_token_of_every_prefix_of_a_sentence_lies_in_it():
    positions = np.tile(np.arange(1, 128), 50)
    drawn = _random(np.repeat(np.arange(50), 127), positions, 3)
    assert (drawn >= 0).all()
    assert (drawn <= positions).all()


def test_every_held_out_prefix_has_the_same_chance_to_be_an_example(whole):
    counts = defaultdict(int)
    total = sum(len(row["tokens"]) for row in read_rows(whole, "sentences") if row["held_out"])
    for seed in range(200):
        examples = example_pass.draw_examples(whole, 20, seed)
        for place in zip(examples.sentence.tolist(), examples.position.tolist(), strict=True):
            counts[place] += 1
    every = list(counts.values()) + [0] * (total - len(counts))
    assert chi_square(every, 200 * 20 / total) < total + 6 * math.sqrt(2 * total)


@pytest.mark.parametrize("causal", [True, False])
def test_shared_prefixes_are_run_once(causal):
    generator = np.random.default_rng(4)
    for _ in range(200):
        count = generator.integers(0, 40)
        texts = [
            generator.choice([0, 1, 255, 256, 70_000], generator.integers(1, 5)).astype(np.int32) for _ in range(count)
        ]
        shared = share_prefixes(texts, causal=causal)
        for text, run_number, position in zip(texts, shared.run, shared.position, strict=True):
            ran = shared.runs[run_number]
            assert position == len(text) - 1
            assert (ran[: position + 1] if causal else ran).tolist() == text.tolist()
        distinct = {tuple(text.tolist()) for text in texts}
        begun = {text[:length] for text in distinct for length in range(1, len(text))} if causal else set()
        assert sorted(tuple(ran.tolist()) for ran in shared.runs) == sorted(distinct - begun)


@pytest.mark.parametrize("levels", [1, 2, 4, 1000])
def test_ranking_takes_the_lower_of_equal_tokens_first(levels):
    logits = torch.randint(levels, (40, 67), generator=torch.Generator().manual_seed(levels)) / 8 - 0.25
    order = [ranking(row) for row in logits.tolist()]
    for count in (1, 2, 20, 66, 67, 100):
        assert ranked(logits, count).tolist() == [row[:count] for row in order]
    assert top(logits).tolist() == [row[0] for row in order]
    for token in range(67):
        ranks = rank_of(torch.full((40,), token), logits)
        assert ranks.tolist() == [row.index(token) + 1 for row in order]


@pytest.mark.parametrize("name", tiny.sweep(name for name in tiny.TABLE if name != "vit"))
def test_which_families_see_what_comes_after(name):
    both_ways = ("bert", "roberta", "distilbert", "modernbert", "t5", "t5 gated", "bart")
    assert make_memory_model(tiny.make(name)).causal is (name not in both_ways)
