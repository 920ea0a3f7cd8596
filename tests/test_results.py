"""A finished study in Python, and the notebook that shows it."""

import ast
import json
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import ffscope
import tiny
from ffscope import read
from ffscope.errors import MemoryNameError, StudyError
from ffscope.report.summary import findings
from studies import make_study

NOTEBOOK = Path(__file__).parents[1] / "examples" / "study.ipynb"


@pytest.fixture(scope="module")
def study(tmp_path_factory, tokenizer):
    model = read(tiny.make("opt"), tokenizer, source="tiny/<b>opt</b>")
    return make_study(model, tmp_path_factory.mktemp("study"), hostile=True)


def test_tables_come_whole_or_by_memory_or_layer(study):
    opened = ffscope.open(study.folder)
    assert isinstance(opened.agreement(), pa.Table)
    assert set(opened.values("L1")["layer"].to_pylist()) == {1}
    triggers = opened.triggers("L0.0")  # which fires
    assert set(zip(triggers["layer"].to_pylist(), triggers["memory"].to_pylist(), strict=True)) == {(0, 0)}
    for table in (opened.mutation("L0"), opened.examples(), opened.composition(), opened.refinement()):
        assert table.num_rows
    assert set(opened.tables) >= {"triggers", "values", "agreement", "mutation", "composition", "refinement"}


def test_triggers_come_with_their_text(study):
    opened = ffscope.open(study.folder)
    page = opened.memory("L2.5")
    rows = opened.triggers("L2.5").to_pylist()
    assert [row["prefix"] for row in rows] == [trigger.before + trigger.token for trigger in page.triggers]
    assert [row["next"] for row in rows] == [trigger.next_token for trigger in page.triggers]


def test_a_memorys_page_has_its_value(study):
    opened = ffscope.open(study.folder)
    page, row = opened.memory("L2.5"), opened.values("L2.5").to_pylist()[0]
    assert [token for token, _ in page.value.promotes] == row["top_text"]
    assert page.value.suppresses == row["bottom_text"]
    agreement = opened.agreement("L2.5").to_pylist()
    assert page.value.precision == (agreement[0]["precision"] if agreement else None)


def test_missing_tables_and_memories_are_named_in_the_error(study, tmp_path):
    opened = ffscope.open(study.folder)
    with pytest.raises(StudyError, match="no table 'trigger'. The tables are: documents"):
        opened.table("trigger")
    with pytest.raises(StudyError, match="has no negative_triggers yet. It has: documents"):
        opened.table("negative_triggers")
    with pytest.raises(MemoryNameError):
        opened.triggers("12.345")
    with pytest.raises(StudyError, match="is not a study"):
        ffscope.open(tmp_path)


def test_tables_that_are_not_by_memory_or_broken_say_so(study, tmp_path):
    opened = ffscope.open(study.folder)
    with pytest.raises(StudyError, match="'composition' cannot be filtered by L0.3"):
        opened.table("composition", "L0.3")
    with pytest.raises(MemoryNameError, match="There is no memory L99.0"):
        opened.triggers("L99.0")
    copy = tmp_path / "copy"
    shutil.copytree(study.folder, copy)
    (copy / "triggers.parquet").write_bytes((copy / "triggers.parquet").read_bytes()[:50])
    with pytest.raises(StudyError, match="triggers.parquet cannot be read as a table"):
        ffscope.open(copy).triggers()
    with pytest.raises(StudyError, match="triggers.parquet cannot be read as a table"):
        ffscope.open(copy).memory("L0.0")
    (copy / "study.json").write_text('{"schema": 1}')
    with pytest.raises(StudyError, match="cannot be read as the manifest of a study: KeyError"):
        ffscope.open(copy)


def test_a_summary_older_than_a_stage_is_made_anew(study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(study.folder, copy)
    (copy / "summary.json").write_text("{}")
    manifest = json.loads((copy / "study.json").read_text())
    manifest["stages"]["refinement"] = manifest["stages"].pop("refinement")  # as if it were done after the report
    (copy / "study.json").write_text(json.dumps(manifest))
    assert ffscope.open(copy).figure("cases").number == 11


def test_a_study_draws_itself_and_escapes_what_it_shows(study):
    results = ffscope.open(study.folder)
    html = results._repr_html_()
    assert html.count("<tr>") == 1 + len(findings(results.summary())) >= 16
    assert "<b>" not in html


def test_a_summary_is_made_where_there_is_no_report(study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(study.folder, copy)
    (copy / "summary.json").unlink()
    opened = ffscope.open(copy)
    assert json.loads(json.dumps(opened.summary())) == ffscope.open(study.folder).summary()
    assert opened.figure("cases").number == 11


def cells():
    return [
        "".join(cell["source"]) for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["cell_type"] == "code"
    ]


def test_the_notebook_runs(study, tmp_path, monkeypatch, capsys, tokenizer):
    """Every cell, and what a notebook does with its last line; a tiny model stands in for the bundled one."""
    monkeypatch.setattr(ffscope, "load", lambda source: read(tiny.make("opt"), tokenizer))
    shutil.copytree(study.folder, tmp_path / "demo-study")
    (tmp_path / "examples").mkdir()
    monkeypatch.chdir(tmp_path / "examples")
    names, shown = {}, []
    for source in cells():
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(NOTEBOOK), "exec"), names)
        if last is not None:
            shown.append(eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names))
    printed = capsys.readouterr().out
    assert "promotes" in printed
    assert "without L2." in printed
    assert [figure.name for figure in shown if hasattr(figure, "_repr_mimebundle_")] == [
        "patterns",
        "cases",
        "mutation",
    ]
