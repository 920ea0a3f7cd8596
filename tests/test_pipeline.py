"""A whole study in one call: what it writes, what it leaves out, and that it resumes after an interruption."""

import hashlib
import json
import os
import re
import shutil
import sys
from dataclasses import replace

import pyarrow.parquet as pq
import pytest
import transformers as hf
from typer.testing import CliRunner

import studies
import tiny
from ffscope import read
from ffscope.cli import app
from ffscope.errors import InputError, LensError, StudyError
from ffscope.options.analysis import ExampleOptions, LensOptions
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import analyse, options_of, run, triggers
from ffscope.progress import no_progress
from ffscope.report.summary import findings
from ffscope.stages.mutation import MutationOptions
from ffscope.stages.registry import stages_in_run
from ffscope.study.folder import Study
from studies import make_study, undrawn, write_corpus

SEARCHING = SearchOptions(top=6)
STAGES = [stage.name for stage in stages_in_run()]
STAGE_OPTIONS = {**studies.SMALL, "encoder": "model"}


def digests(folder):
    """Every file of a study but the manifest, whose seconds differ, and the page, which shows them."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in ("study.json", "report.html", ".lock")
    }


def accounts(folder):
    manifest = json.loads((folder / "study.json").read_text())
    for stage in manifest["stages"].values():
        stage.pop("seconds", None)
        stage.pop("tokens_per_second", None)
    return manifest


@pytest.fixture(scope="module", autouse=True)
def quick_figures():
    """Figures are tested with the report."""
    with undrawn():
        yield


@pytest.fixture(scope="module")
def model(tokenizer):
    return read(tiny.make("qwen2"), tokenizer, source="tiny/qwen2")


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    return make_study(model, tmp_path_factory.mktemp("whole"))


def test_a_study_has_every_file_of_the_contract(whole):
    names = {path.name for path in whole.folder.iterdir()}
    tables = ("triggers", "values", "agreement", "mutation", "examples", "composition", "refinement", "last_layer")
    assert {f"{table}.parquet" for table in tables} <= names
    assert {"study.json", "summary.json", "report.html", "figures"} <= names
    assert not [name for name in names if name.startswith(".") and name != ".lock"]  # no part is left behind
    stages = whole.manifest["stages"]
    assert all(stages[stage]["done"] for stage in ("triggers", *STAGES, "report"))


def test_stage_by_stage_is_the_same_study(whole, model, tmp_path):
    reading = CorpusOptions(whole.settings["corpus"])
    triggers(model, reading, tmp_path / "study", search=SEARCHING)
    for stage in STAGES:
        analyse(stage, model, tmp_path / "study", **STAGE_OPTIONS)
    expected = digests(whole.folder)
    for name, digest in digests(tmp_path / "study").items():
        assert digest == expected[name], name


def test_a_second_run_changes_nothing(whole, model):
    before = digests(whole.folder)
    written = {name: (whole.folder / name).stat().st_mtime_ns for name in before if name.endswith(".parquet")}
    run(model, CorpusOptions(whole.settings["corpus"]), whole.folder, search=SEARCHING)  # with the study's own numbers
    assert digests(whole.folder) == before
    assert {name: (whole.folder / name).stat().st_mtime_ns for name in written} == written


def test_a_stage_without_one_of_its_tables_is_run_again(whole, model, tmp_path):
    study = studies.copy_of(whole, tmp_path)
    for stage, table in (("refinement", "last_layer"), ("effects", "exact_effects")):
        study.path(f"{table}.parquet").unlink()
        assert not study.has(stage)
    run(model, CorpusOptions(whole.settings["corpus"]), study.folder, search=SEARCHING, **STAGE_OPTIONS)
    assert digests(study.folder) == digests(whole.folder)


class Stop(Exception):
    pass


@pytest.mark.parametrize("after", [1, 6, 11, 16, 22])
def test_a_run_stopped_anywhere_ends_with_the_same_files(whole, model, tmp_path, after):
    calls = 0

    def stop(_):
        nonlocal calls
        calls += 1
        if calls == after:
            raise Stop

    reading = CorpusOptions(whole.settings["corpus"])
    with pytest.raises(Stop):
        run(model, reading, tmp_path / "study", search=SEARCHING, progress=stop, **STAGE_OPTIONS)
    run(model, reading, tmp_path / "study", search=SEARCHING, **STAGE_OPTIONS)
    assert digests(tmp_path / "study") == digests(whole.folder)
    assert accounts(tmp_path / "study") == accounts(whole.folder)


def test_other_numbers_than_the_studys_are_refused(whole, model):
    for stage, options in (
        ("mutation", {"mutation_memories": 5}),
        ("values", {"lens": "raw"}),
        ("refinement", {"examples": 9}),
    ):
        with pytest.raises(StudyError, match=f"is a study with {next(iter(options))} = "):
            analyse(stage, model, whole.folder, **options)


def test_invalid_options_are_noticed_before_the_search(model, tmp_path):
    reading = CorpusOptions(str(write_corpus(tmp_path / "corpus.jsonl")))
    for options, error in (
        ({"exampels": 3}, InputError),
        ({"examples": 0}, InputError),
        ({"lens": "nrom"}, LensError),
        ({"pattern_triggers": 2}, InputError),
    ):
        with pytest.raises(error, match=next(iter(options.keys() if error is InputError else options.values()))):
            run(model, reading, tmp_path / "study", **options)
        assert not (tmp_path / "study").exists()


def test_a_table_that_is_gone_is_made_again(whole, model, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole.folder, copy)
    (copy / "mutation.parquet").unlink()
    analyse("mutation", model, copy)
    assert digests(copy) == digests(whole.folder)


def test_defaults_are_the_studys_settings_or_the_papers(whole):
    options = options_of(whole, {"lens": None})
    assert options(LensOptions) == LensOptions("norm")
    assert options(ExampleOptions) == ExampleOptions(40)
    assert options(MutationOptions) == MutationOptions(4, 5)
    assert (ExampleOptions(), MutationOptions()) == (ExampleOptions(4000), MutationOptions(100, 50))


def test_a_model_without_unembedding_gets_what_it_can(tokenizer, tmp_path):
    plain = tiny.make("bert")
    headless = hf.BertModel(plain.config, add_pooling_layer=False)
    headless.load_state_dict(plain.bert.state_dict())
    study = make_study(read(headless, tokenizer, source="headless"), tmp_path)
    stages = study.manifest["stages"]
    assert [stage for stage in stages if not stages[stage]["done"]] == ["agreement", "refinement", "effects"]
    assert "has no unembedding" in stages["refinement"]["why"]
    composition = pq.read_table(study.path("composition.parquet"))
    assert composition["matches"].null_count == composition.num_rows
    assert composition["active"].null_count == 0
    page = study.path("report.html").read_text()
    assert "Stages left out" in page
    assert "has no unembedding" in page
    assert {"mutation", "active", "patterns", "pattern_examples", "types", "type_examples"} == set(
        json.loads(study.path("summary.json").read_text())
    )


def test_where_figures_cannot_be_drawn_the_rest_is_done(model, tmp_path, monkeypatch, caplog):
    """A machine with a GPU may have torch and no altair."""
    monkeypatch.setitem(sys.modules, "ffscope.report.page", None)
    study = make_study(model, tmp_path)
    assert study.has("refinement")
    assert not study.has("report")
    assert "Skipped: the report" in caplog.text


def test_a_text_with_nothing_held_out_has_no_examples(model, tmp_path, caplog):
    study = make_study(model, tmp_path, documents=7)
    stages = study.manifest["stages"]
    assert [stage for stage in stages if not stages[stage]["done"]] == ["composition", "refinement", "effects"]
    assert "--held-out" in stages["composition"]["why"]
    assert "Skipped: composition" in caplog.text
    assert "mutation" in json.loads(study.path("summary.json").read_text())


def test_tables_without_rows_are_left_out_of_the_summary(model, tmp_path):
    """Sentences of one token, which cannot lose one, and no document held out."""
    (tmp_path / "letters.txt").write_text("a\nb\nc\n")
    study = run(model, CorpusOptions(str(tmp_path / "letters.txt")), tmp_path / "study", search=SEARCHING)
    assert pq.read_table(study.path("mutation.parquet")).num_rows == 0
    assert set(json.loads(study.path("summary.json").read_text())) == {
        "agreement", "next_rank", "agreement_by_probability", "predictive_values", "patterns", "types",
    }  # fmt: skip
    assert "agreement" in study.path("report.html").read_text()


def test_minutes_cap_the_search(model, tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    monkeypatch.setattr("ffscope.search.time_budget._prefixes_per_second", lambda *_: 100.0)
    study = triggers(model, CorpusOptions(str(corpus)), tmp_path / "study", search=replace(SEARCHING, minutes=10 / 60))
    done = study.manifest["stages"]["triggers"]
    rows = pq.read_table(study.path("sentences.parquet"), filters=[("held_out", "==", False)]).to_pylist()
    lengths = [len(row["tokens"]) for row in rows]
    assert done["prefixes"] == sum(lengths[: done["sentences"]])
    assert done["prefixes"] <= 900 < done["prefixes"] + lengths[done["sentences"]]  # nine tenths of ten seconds
    last = rows[done["sentences"] - 1]["sentence"]
    assert max(pq.read_table(study.path("triggers.parquet"))["sentence"].to_pylist()) <= last
    before = digests(study.folder)
    triggers(model, CorpusOptions(str(corpus)), tmp_path / "study", search=replace(SEARCHING, minutes=10 / 60))
    assert digests(study.folder) == before
    with pytest.raises(StudyError, match="is a study with minutes = "):
        triggers(model, CorpusOptions(str(corpus)), tmp_path / "study", search=SEARCHING)


def test_the_time_budget_is_measured_once(model, tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "corpus.jsonl")

    def search(pace, progress=no_progress):
        monkeypatch.setattr("ffscope.search.time_budget._prefixes_per_second", lambda *_: pace)
        how = {"search": replace(SEARCHING, minutes=10 / 60), "progress": progress}
        return triggers(model, CorpusOptions(str(corpus)), tmp_path / "study", **how)

    def stop(progress):
        if progress.stage == "searching":
            raise Stop

    with pytest.raises(Stop):
        search(100.0, stop)
    assert search(5.0).manifest["stages"]["triggers"]["prefixes"] > 800  # as first planned


def test_enough_minutes_search_everything(model, tmp_path):
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    study = triggers(model, CorpusOptions(str(corpus)), tmp_path / "study", search=replace(SEARCHING, minutes=30.0))
    assert study.manifest["stages"]["triggers"]["sentences"] == study.manifest["corpus"]["searched"]["sentences"]


@pytest.fixture
def saved(tokenizer, tmp_path):
    """A tiny model in a folder, as a user has one."""
    tiny.make("opt").save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def command(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, (result.output, result.exception)
    return result.output


def test_the_command_makes_a_study_and_says_what_it_shows(saved, tmp_path):
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    options = [part for name, number in STAGE_OPTIONS.items() for part in (f"--{name.replace('_', '-')}", number)]
    output = command("run", saved, "--corpus", corpus, "--out", tmp_path / "study", "--top", 6, *options)
    shown = findings(json.loads((tmp_path / "study" / "summary.json").read_text()))
    assert len(re.findall("^• ", output, re.MULTILINE)) == len(shown) >= 15
    assert f"{tmp_path / 'study' / 'report.html'}" in output
    by_stage = tmp_path / "by-stage"
    command("triggers", saved, "--corpus", corpus, "--out", by_stage, "--top", 6)
    for stage in (*STAGES, "effects", "types"):
        of_stage = {
            "mutation": options[2:6],
            "composition": options[:2],
            "refinement": options[:2],
            "effects": options[:2] + options[6:12],
            "patterns": options[12:],
        }
        numbers = of_stage.get(stage, [])
        assert f"{stage}.parquet" in command(stage, by_stage, *numbers)
    assert "report.html" in command("report", by_stage)
    assert digests(by_stage) == digests(tmp_path / "study")


def test_a_model_that_has_moved_is_named(saved, tmp_path):
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    command("triggers", saved, "--corpus", corpus, "--out", tmp_path / "study")
    os.rename(saved, tmp_path / "moved")
    result = CliRunner().invoke(app, ["values", str(tmp_path / "study")])
    assert "name another one with --model" in str(result.exception)
    assert "values.parquet" in command("values", tmp_path / "study", "--model", tmp_path / "moved")


def test_another_model_is_refused(saved, tokenizer, tmp_path):
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    command("triggers", saved, "--corpus", corpus, "--out", tmp_path / "study")
    tiny.make("opt post-norm").save_pretrained(tmp_path / "other")
    tokenizer.save_pretrained(tmp_path / "other")
    result = CliRunner().invoke(app, ["values", str(tmp_path / "study"), "--model", str(tmp_path / "other")])
    assert isinstance(result.exception, StudyError)
    assert not (tmp_path / "study" / "values.parquet").exists()


def test_a_stage_run_too_early_says_which_comes_first(saved, tmp_path):
    result = CliRunner().invoke(app, ["values", str(tmp_path / "nothing")])
    assert isinstance(result.exception, StudyError)
    corpus = write_corpus(tmp_path / "corpus.jsonl")
    command("triggers", saved, "--corpus", corpus, "--out", tmp_path / "study")
    for stage, first in (("agreement", "values"), ("composition", "values")):
        result = CliRunner().invoke(app, [stage, str(tmp_path / "study")])
        assert f"has no {first} yet. Run `ffscope {first}` on it first" in str(result.exception)


def test_a_study_being_written_is_not_reported_on(whole):
    with (
        Study.adding(whole.folder),
        pytest.raises(StudyError, match="Another ffscope process is writing"),
        Study.adding(whole.folder),
    ):
        pass
