"""The command line, as a user meets it."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import tiny
from command_line import ffscope
from ffscope.cli import app


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokenizer):
    folder = tmp_path_factory.mktemp("model")
    tiny.make("llama").save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def in_a_process(*args: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "ffscope", *args], capture_output=True, text=True, timeout=120)


def seconds_of_children():
    """CPU seconds of child processes, which do not depend on other programs."""
    times = os.times()
    return times.children_user + times.children_system


def test_help_is_quick_and_does_not_import_torch():
    times = []
    for _ in range(3):
        start = seconds_of_children()
        result = in_a_process("--help")
        times.append(seconds_of_children() - start)
        assert result.returncode == 0
    assert min(times) < 1
    heavy = "import ffscope.cli, sys; sys.exit(bool({'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", heavy], timeout=60).returncode == 0


@pytest.mark.parametrize("command", [command.callback.__name__ for command in app.registered_commands])
def test_every_command_has_help(command):
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0, result.exception
    assert "Usage" in result.output


def test_check_prints_every_identity_and_succeeds(folder):
    result = ffscope("check", folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("holds") == 7
    assert "layout in the table" in result.stdout


def test_check_fails_where_an_identity_does(folder, monkeypatch):
    from ffscope.models import check as identities

    monkeypatch.setattr(identities, "tolerance", lambda dtype: -1.0)
    result = CliRunner().invoke(app, ["check", folder, "--json"])
    assert result.exit_code == 1
    assert not any(finding["holds"] for finding in json.loads(result.stdout)["findings"])


def test_trace_prints_every_layer_of_a_prompt(folder):
    result = CliRunner().invoke(app, ["trace", folder, "Ab cd"])
    assert result.exit_code == 0, result.output
    assert "L2." in result.stdout
    assert "the model predicts:" in result.stdout
    story = json.loads(CliRunner().invoke(app, ["trace", folder, "Ab cd", "--json", "--memories", "2"]).stdout)
    assert [step["layer"] for step in story["steps"]] == [0, 1, 2]
    assert all(len(step["memories"]) == 2 for step in story["steps"])
    assert story["steps"][-1]["after"]["token"] == story["prediction"][0]["token"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["check", "./nowhere"], "error: There is no file or folder ./nowhere"),
        (["trace", "FOLDER", ""], "error: The text has no tokens"),
        (["trace", "FOLDER", "a" * 60], "error: The text has 61 tokens, BOS included; this model takes at most 41"),
        (["trace", "FOLDER", "a", "--lens", "magic"], "'magic' is not one of 'norm', 'raw'"),
        (["trace", "FOLDER", "a", "--layers", "1-3"], "error: There are no layers 1-3. This model has layers 0 to 2."),
        (
            ["trace", "FOLDER", "a", "--layers", "last"],
            "error: 'last' is not a range of layers. Expected numbers and ranges",
        ),
        (["trace", "FOLDER", "a", "--dtype", "float1"], "'float1' is not one of 'auto', 'float32'"),
        (
            ["trace", "FOLDER", "a", "--layers", "2-1"],
            "error: '2-1' is a descending range. Write the smaller number first: '1-2'",
        ),
        (["trace", "FOLDER", "a", "--layers", ""], "error: '' is not a range of layers"),
        (["check", ""], "error: Expected a model, found none."),
    ],
)
def test_an_error_is_one_sentence_and_an_exit_code(folder, args, message):
    result = ffscope(*(folder if arg == "FOLDER" else arg for arg in args))
    assert result.returncode == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert "Traceback" not in result.stderr


def test_debug_shows_the_traceback():
    for args in (["--debug", "check", "./nowhere"], ["check", "./nowhere", "--debug"]):
        result = ffscope(*args)
        assert "Traceback" in result.stderr
        assert result.returncode != 0


def test_a_process_ends_with_the_sentence_or_the_traceback():
    args = ("show", "./nowhere", "L0.0")  # which needs no torch
    for result in (in_a_process(*args), in_a_process(*args, "--debug")):
        assert "is not a study" in result.stderr
        assert ("Traceback" in result.stderr) is ("--debug" in result.args)
        assert result.returncode == (1 if "--debug" in result.args else 2)


def test_hostile_tokens_do_not_reach_the_terminal(tmp_path, tokenizer):
    tiny.make("llama").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    file = tmp_path / "tokenizer.json"
    contents = json.loads(file.read_text())
    contents["added_tokens"].append(
        {**contents["added_tokens"][0], "id": 66, "content": "\x1b[31m[bold]\u202e<script>"}
    )
    contents["model"]["vocab"] = {token: i for token, i in contents["model"]["vocab"].items() if i != 66}
    file.write_text(json.dumps(contents))
    result = CliRunner().invoke(app, ["trace", str(tmp_path), "a\x1b[31m[bold]\u202e<script>b"])
    assert result.exit_code == 0, result.output
    assert "<001B>[31m[bold]<202E><script>" in result.stdout
    assert "\x1b[31m" not in result.stdout
    assert "\u202e" not in result.stdout


def test_triggers_and_show(folder, tmp_path):
    (tmp_path / "a.txt").write_text("The cat sat. On the mat it sat. Who saw it?")
    out = tmp_path / "my study"
    result = ffscope("triggers", folder, "--corpus", str(tmp_path / "a.txt"), "--out", str(out), "--layers", "0-1")
    assert result.returncode == 0, result.stderr
    assert "prefixes of 3 sentences searched for 44 memories" in " ".join(result.stdout.split())
    assert "show" in result.stdout
    assert "L0.0" in result.stdout
    assert "searching: 3 of 3 sentences" in result.stderr
    assert "prefixes/s" in result.stderr
    shown = ffscope("show", str(out), "L1.3")
    assert shown.returncode == 0, shown.stderr
    assert "L1.3 of" in shown.stdout
    result = ffscope("show", str(out), "L2.3")
    assert result.returncode == 2
    assert "L2.3 was not searched" in result.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--corpus", "nowhere.txt"], "error: There is no corpus 'nowhere.txt'"),
        (
            ["--corpus", "CORPUS", "--memories", "20-22"],
            "error: There are no memories 20-22. This model has memories 0 to 21",
        ),
        (["--corpus", "CORPUS", "--top", "0"], "greater than or equal to 1"),
        ([], "Missing option '--corpus'"),
    ],
)
def test_triggers_explains_errors(folder, tmp_path, options, message):
    (tmp_path / "a.txt").write_text("The cat sat.")
    options = [str(tmp_path / "a.txt") if option == "CORPUS" else option for option in options]
    result = ffscope("triggers", folder, "--out", str(tmp_path / "study"), *options)
    assert result.returncode == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())
    assert not (tmp_path / "study").exists()


def test_an_interrupted_study_says_that_nothing_is_lost(folder, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("The cat sat. On the mat it sat.")

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("ffscope.pipeline.run", interrupted)
    result = ffscope("run", folder, "--corpus", tmp_path / "a.txt", "--out", tmp_path / "study")
    assert result.returncode == 130
    assert "Interrupted. Finished work is saved; run the same command to resume" in result.stderr
    assert "Traceback" not in result.stderr
