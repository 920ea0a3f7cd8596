"""What is shown of a comparison of two models: in the terminal, in the report, on the pages and in exports."""

import json
import re
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

from command_line import ffscope
from explorer import app_of, client_of
from ffscope import read
from ffscope.differences import diff
from ffscope.errors import InputError
from ffscope.memory_name import Memory
from ffscope.pipeline import analyse
from ffscope.queries.diff import before_and_after, changed_memories, diff_summary
from ffscope.queries.layer import layer_page
from ffscope.queries.search import SearchQuery, search
from ffscope.study.folder import Study
from ffscope.web.about import about
from ffscope.web.export import export
from studies import undrawn, write_corpus


@pytest.fixture(scope="module")
def made_before(compared):
    """The folder of the two studies, and of both models."""
    return compared


@pytest.fixture(scope="module")
def study(made_before):
    return Study.open(made_before / "both" / "b")


@pytest.fixture
def copied(study, tmp_path):
    return Study.open(shutil.copytree(study.folder, tmp_path / "study"))


def test_two_models_are_compared_by_one_command(made_before, study):
    printed = (made_before / "printed.txt").read_text()
    assert "paired" not in printed
    assert "the memory of the same number" in printed
    assert re.search(r"predictions changed; KL .* nats; perplexity", printed)
    assert re.search(r"^ *all +66 ", printed, re.MULTILINE)
    assert printed.index("L2.7") > printed.index("changed most")
    assert not re.search(r"[\x1b\u202e]", printed)


def test_studies_are_compared_and_printed_as_json(made_before, copied):
    before = made_before / "both" / "a"
    result = ffscope("diff", before, copied.folder, "--match", "activations", "--diff-tokens", "300", "--json")
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["match"] == "activations"
    assert len(answer["layers"]) == 3
    assert answer["changed"][0]["memory"] == "L2.7"
    assert answer["overall"]["baseline"] is not None
    assert "In excess" not in result.stdout
    printed = ffscope("diff", before, copied.folder, "--match", "activations", "--diff-tokens", "300").stdout
    assert "excess" in printed


def test_errors_of_the_command_say_what_to_do(made_before, tmp_path):
    both = made_before / "both"
    wrong = {
        (made_before / "before", both / "b"): "is not a study. Expected the folders of two studies",
        (both / "a", both / "b", "--match", "names"): "names",
        (made_before / "before", made_before / "after", "--corpus", made_before / "corpus.jsonl"): "--out DIR",
        (both / "a", both / "b", "--model-a", made_before / "after"): "--model-a",
    }
    for arguments, message in wrong.items():
        result = ffscope("diff", *arguments, *(["--diff-tokens", "400"] if "--model-a" in arguments else []))
        assert result.returncode != 0
        assert message in " ".join(result.stderr.split())


def by_layer(study):
    """The columns of the table as arrays, layer by layer; NaN for null."""
    table = pq.read_table(study.path("diff.parquet"))
    layers = table["layer"].to_numpy()
    columns = {
        name: np.array(table[name].to_pylist(), dtype=np.float64)
        for name in table.column_names
        if name != "tokens_before"
    }
    return [{name: column[layers == layer] for name, column in columns.items()} for layer in range(3)]


def test_the_summary_has_the_means_of_the_table(study):
    summary = diff_summary(study)
    for number, (row, columns) in enumerate(zip(summary.layers, by_layer(study), strict=True)):
        assert (row.layer, row.memories) == (number, 22)
        for name in ("correlation", "key_cosine", "gate_cosine", "value_cosine", "triggers_kept", "top_kept"):
            assert getattr(row, name) == pytest.approx(np.nanmean(columns[name]))
        assert row.change == pytest.approx(np.sqrt((columns["change"] ** 2).sum()))
        assert row.universal == pytest.approx((columns["correlation"] > 0.5).mean())
        assert row.baseline is None
        assert row.excess is None
    assert summary.overall.memories == 66
    assert summary.overall.value_cosine == pytest.approx(np.mean([c["value_cosine"] for c in by_layer(study)]))
    assert summary.overall.change == pytest.approx(np.sqrt(np.mean([row.change**2 for row in summary.layers])))
    assert summary.predictions["changed"] > 0


def test_universality_is_counted_in_excess_of_the_baseline(made_before, copied):
    models = [read_of(made_before / name) for name in ("before", "after")]
    diff(made_before / "both" / "a", copied.folder, model_before=models[0], model_after=models[1], match="activations")
    for row, columns in zip(diff_summary(copied.folder).layers, by_layer(copied), strict=True):
        assert row.baseline == pytest.approx((columns["baseline"] > 0.5).mean())
        assert row.excess == pytest.approx((columns["correlation"] - columns["baseline"] > 0.5).mean())
        assert np.nanmin(columns["correlation"]) > 0.99


def test_a_comparison_is_a_stage_that_loads_the_model_before_from_where_its_study_records_it(made_before, copied):
    after = read_of(made_before / "after")
    study = analyse("diff", after, copied.folder, base=str(made_before / "both" / "a"), diff_tokens=300)
    assert study.manifest["stages"]["diff"]["sampled_tokens"] < 400
    moved = analyse(
        "diff",
        after,
        copied.folder,
        base=str(made_before / "both" / "a"),
        base_model=str(made_before / "before"),
        diff_tokens=200,
    )
    assert moved.manifest["stages"]["diff"]["sampled_tokens"] < 300


def read_of(folder):
    from ffscope import load

    return load(folder, device="cpu")


def test_memories_are_listed_by_what_has_changed(study):
    rows = changed_memories(study, 66)
    assert rows[0].memory == rows[0].partner == "L2.7"
    assert rows[0].value_cosine == pytest.approx(-1)
    assert rows[0].tokens_before != rows[0].tokens_after
    assert rows[0].trigger_before.tokens == rows[0].trigger_after.tokens  # its key has not changed
    changes = [row.change for row in rows]
    assert changes == sorted(changes, reverse=True)
    by_value = [row.value_cosine for row in changed_memories(study, 66, sort="value_cosine")]
    assert by_value == sorted(by_value)
    assert {row.memory[:2] for row in changed_memories(study, 66, layer=1)} == {"L1"}
    assert [row.memory for row in changed_memories(study, 2, offset=1)] == [row.memory for row in rows[1:3]]
    with pytest.raises(InputError, match="sorted by 'size'. Expected one of change"):
        changed_memories(study, sort="size")


def test_the_panel_shows_a_memory_before_and_after(study):
    panel = before_and_after(study, Memory(2, 7))
    rows = {row[0]: row[1:] for row in panel["rows"]}
    assert rows["memory"] == ["L2.7", "L2.7"]
    assert rows["cosine of values"] == ["", "-1.000"]
    assert rows["promotes"][0] != rows["promotes"][1]
    assert [row[0] for row in panel["more"]["rows"]] == list(range(1, 11))
    assert before_and_after(study, Memory(9, 7)) is None


def test_measures_are_columns_filters_and_sort_keys(study):
    columns = layer_page(study, 2).columns
    assert max(range(22), key=columns["change"].__getitem__) == 7
    found_memories = search(study, SearchQuery.parse({"sort": "-change", "value_cosine": "..0"}, limit=5))
    assert [row.memory for row in found_memories.rows] == ["L2.7"]


def test_the_report_has_its_figures_and_findings(copied):
    with undrawn():
        analyse("report", None, copied.folder)
    summary = json.loads(copied.path("summary.json").read_text())
    assert summary["diff_layers"]["layer"] == [0, 1, 2]
    assert summary["diff_layers"]["series"]["value_cosine"]["value"][:2] == pytest.approx([1, 1])
    assert summary["universality"]["overall"]["universal"]["value"] == pytest.approx(1)
    report = copied.path("report.html").read_text()
    assert "Predictions that differ from those of the model before" in report
    assert "What is kept between two models" in report


def test_the_page_has_both_sides_of_the_memories(study):
    client = client_of(app_of(study.folder))
    assert client.get("/diff").status_code == 200
    answer = client.get("/diff.json").json()
    assert (answer["before"], answer["after"]) == ("before", "after")  # names, not paths
    assert len(answer["memories"]) == 50
    assert answer["memories"][0]["memory"] == "L2.7"
    assert answer["memories"][0]["before"]["trigger"]["tokens"]
    assert client.get("/diff.json?sort=triggers_kept&layer=0&limit=3").json()["memories"][2]["memory"].startswith("L0.")
    assert client.get("/diff.json?sort=nothing").status_code == 400
    assert str(study.folder) not in json.dumps([client.get(path).json() for path in ("/diff.json", "/index.json")])


def test_a_study_without_a_comparison_has_no_page_of_it(explored, study):
    names = [{measure["name"] for measure in about(each)["measures"]} for each in (explored, study)]
    assert names[1] - names[0] == {
        "change",
        "partner_correlation",
        "triggers_kept",
        "value_cosine",
        "key_cosine",
        "top_kept",
    }
    answer = client_of(app_of(explored.folder)).get("/diff.json")
    assert answer.status_code == 409
    layer = client_of(app_of(explored.folder)).get("/L0.json").json()
    assert "diff" not in [entry["stage"] for entry in layer["missing"]]


def test_an_export_has_the_page(study, explored, tmp_path):
    export(study.folder, tmp_path / "site", names="L2.7")
    assert json.loads((tmp_path / "site" / "diff.json").read_text())["memories"][0]["memory"] == "L2.7"
    assert "page-data" in (tmp_path / "site" / "diff.html").read_text()
    export(explored.folder, tmp_path / "other", names="L0.3")
    assert not (tmp_path / "other" / "diff.html").exists()


def test_the_pages_need_the_other_study_no_longer(study, tmp_path):
    alone = Study.open(shutil.copytree(study.folder, tmp_path / "alone"))
    manifest = json.loads(alone.path("study.json").read_text())
    manifest["stages"]["diff"]["base"]["study"] = "/nowhere"
    alone.path("study.json").write_text(json.dumps(manifest))
    answer = client_of(app_of(alone.folder)).get("/diff.json").json()
    assert answer["memories"][0]["before"]["tokens"]


def test_a_model_without_unembedding_is_compared_without_tokens(tokenizer, tmp_path):
    import transformers as hf

    import tiny
    from ffscope.differences import make_study
    from ffscope.options.corpus import CorpusOptions

    corpus = write_corpus(tmp_path / "corpus.jsonl", documents=20)
    config = dict(tiny._GPT2)
    models = [read(tiny.build(hf.GPT2Model, hf.GPT2Config, config, seed), tokenizer) for seed in (0, 1)]
    studies = [
        make_study(model, CorpusOptions(str(corpus), max_tokens=10), tmp_path / name)
        for model, name in zip(models, ("a", "b"), strict=True)
    ]
    compared = diff(studies[0].folder, studies[1].folder, model_before=models[0], model_after=models[1])
    entry = compared.manifest["stages"]["diff"]
    assert entry["match"] == "activations"  # two seeds
    assert entry["predictions"] is None
    assert "unembedding" in entry["why_no_predictions"]
    assert pq.read_table(compared.path("diff.parquet"))["top_before"].null_count == 66
    assert changed_memories(compared)[0].tokens_before == []
    assert "promotes" not in [row[0] for row in before_and_after(compared, Memory(0, 1))["rows"]]
    page = client_of(app_of(compared.folder)).get("/diff.json").json()
    assert page["predictions"] is None
