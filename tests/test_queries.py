"""Reading a study: the same answer from the library and from the command line."""

import json
import shutil
from dataclasses import asdict

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import tiny
from command_line import ffscope
from ffscope import read
from ffscope.cli import app
from ffscope.errors import MemoryNameError, StudyError
from ffscope.options.corpus import CorpusOptions
from ffscope.options.search import SearchOptions
from ffscope.pipeline import triggers
from ffscope.queries.gist import gist
from ffscope.queries.memory import memory_page
from ffscope.queries.patterns import AnnotatedPattern

HOSTILE = "Hi <script>alert</script> [bold]you. A\x1b[31mb \u202eevil. Plain <b>end</b>."


@pytest.fixture(scope="module")
def study(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("study")
    (folder / "a.txt").write_text(f"{HOSTILE}\nThe cat sat. On the mat it sat.")
    model = read(tiny.make("gpt2"), tokenizer, source="tiny/gpt2")
    return triggers(
        model, CorpusOptions(str(folder / "a.txt")), folder / "study", search=SearchOptions(top=4, negative=True)
    )


def test_a_page_has_the_triggers_and_their_text(study):
    page = memory_page(study.folder, "L1.3")
    assert (page.memory, page.model, page.dtype) == ("L1.3", "tiny/gpt2", "float32")
    assert page.fired <= page.seen
    assert [trigger.rank for trigger in page.triggers] == list(range(1, len(page.triggers) + 1))
    assert page.triggers[0].coefficient == page.maximum
    texts = pq.read_table(study.path("sentences.parquet"))["text"].to_pylist()
    for trigger in (*page.triggers, *page.sample, *page.negative):
        assert trigger.title == "a.txt"
        assert any(text.startswith(trigger.before) for text in texts)
    assert all(trigger.coefficient < 0 for trigger in page.negative)


@pytest.mark.parametrize(
    ("patterns", "promotes", "dead", "line"),
    [
        (["ends with “of”", "other"], ["␣which", "␣whom"], False, "Fires on: ends with “of” · promotes ␣which ␣whom"),
        ([], list("abcdefg"), False, "Fires on: no pattern found · promotes a b c d e"),
        ([], ["a"], True, "Fires on: no prefix of the corpus · promotes a"),
        (None, ["a"], False, "promotes a"),
        (["topic"], None, False, "Fires on: topic"),
        (["topic"], [], False, "Fires on: topic"),
        (None, None, False, "Its patterns and its value have not been computed yet."),
    ],
)
def test_a_gist_says_what_is_known(patterns, promotes, dead, line):
    known = patterns and [AnnotatedPattern("machine", "shallow", text, [1], None, None) for text in patterns]
    assert gist(known, promotes, dead=dead) == line


def test_show_says_what_a_memory_does_first(study):
    result = CliRunner().invoke(app, ["show", str(study.folder), "L0.2"])
    assert result.stdout.splitlines()[1] == memory_page(study.folder, "L0.2").gist


def test_show_prints_what_the_query_gives(study):
    page = memory_page(study.folder, "L0.2")
    result = CliRunner().invoke(app, ["show", str(study.folder), "L0.2", "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads(json.dumps(asdict(page)))


def test_show_lets_no_control_character_through(study):
    shown = ""
    for memory in range(22):
        result = CliRunner().invoke(app, ["show", str(study.folder), f"L2.{memory}", "--count", "9"])
        assert result.exit_code == 0, result.output
        shown += result.stdout
    assert "<script>" in shown
    assert "[bold]" in shown
    assert "\x1b[31m" not in shown
    assert "\u202e" not in shown


def test_show_explains_errors(study, tmp_path):
    for name, message in (
        ("L9.0", "There is no memory L9.0. The study's model has layers 0 to 2."),
        ("L1.22", "There is no memory L1.22. Layer 1 has memories 0 to 21."),
        ("L1", "names a whole layer"),
    ):
        with pytest.raises(MemoryNameError, match=message):
            memory_page(study.folder, name)
    with pytest.raises(StudyError, match="is not a study: it has no study.json"):
        memory_page(tmp_path, "L0.0")
    (tmp_path / "study.json").write_text("{")
    with pytest.raises(StudyError, match="cannot be read as the manifest of a study"):
        memory_page(tmp_path, "L0.0")
    (tmp_path / "study.json").write_text('{"schema": 99}')
    with pytest.raises(StudyError, match="written with schema 99; this ffscope reads schema 1"):
        memory_page(tmp_path, "L0.0")
    (tmp_path / "study.json").write_text(json.dumps({**study.manifest, "stages": {}}))
    with pytest.raises(StudyError, match="has no triggers yet"):
        memory_page(tmp_path, "L0.0")


def test_no_name_in_a_study_is_obeyed_by_a_terminal(study, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(study.folder, copy)
    manifest = json.loads((copy / "study.json").read_text())
    manifest["model"]["source"] = "\x1b]0;pwn\x07\u202e"
    (copy / "study.json").write_text(json.dumps(manifest))
    for command in (["show", str(copy), "L0.2"], ["values", str(copy)]):
        result = ffscope(*command)
        assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout + result.stderr)
