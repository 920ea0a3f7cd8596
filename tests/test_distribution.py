"""What `make dist` builds: the files in it, and that it runs without the checkout."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import ffscope
from wheels import ROOT, build

SOURCE = ROOT / "src"
JUNK = (".git/", ".ci/", ".github/", ".venv/", "__pycache__", ".pyc", ".pytest_cache", "demo-study/", ".DS_Store")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    return build("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """A folder with the installed wheel; its dependencies are this environment's."""
    folder = tmp_path_factory.mktemp("installed")
    command = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, timeout=120)
    return folder


def run(installed: Path, elsewhere: Path, *words: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    result = subprocess.run(words, cwd=elsewhere, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    return result.stdout


def tracked(folder: str) -> set[str]:
    """The files under a folder of the checkout that a distribution should have."""
    files = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_the_wheel_has_every_file_of_the_package(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    package = {name.removeprefix("src/") for name in tracked("src/ffscope")}
    assert {name for name in names if not name.startswith("ffscope-")} == package
    suffixes = {Path(name).suffix for name in package}
    assert {".js", ".css", ".svg", ".j2", ".txt"} <= suffixes


def test_the_wheel_says_what_it_is(wheel):
    assert wheel.name == f"ffscope-{ffscope.__version__}-py3-none-any.whl"
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(f"ffscope-{ffscope.__version__}.dist-info/METADATA").decode()
    assert "License-Expression: Apache-2.0" in metadata
    assert "Provides-Extra: label" in metadata
    assert "Provides-Extra: ray" in metadata


def test_the_sdist_has_what_is_needed_and_no_junk(sdist):
    root = f"ffscope-{ffscope.__version__}/"
    with tarfile.open(sdist) as archive:
        names = {name.removeprefix(root) for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "constraints.txt"} <= names
    assert tracked("src/ffscope") <= names
    assert [name for name in names if any(junk in name for junk in JUNK)] == []
    assert {name.split("/")[0] for name in names if "/" in name} == {"src", "tests", "docs", "examples", "bench"}


def test_the_sdist_builds_the_same_wheel(sdist, wheel, tmp_path):
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    other = build("wheel", tmp_path / "dist", root=unpacked)
    files = {item.filename: item.CRC for item in zipfile.ZipFile(wheel).infolist()}
    assert {item.filename: item.CRC for item in zipfile.ZipFile(other).infolist()} == files


def test_the_installed_wheel_runs_from_elsewhere(installed, tmp_path):
    program = str(installed / "bin" / "ffscope")
    assert run(installed, tmp_path, program, "--version") == f"ffscope {ffscope.__version__}\n"
    place = run(installed, tmp_path, sys.executable, "-c", "import ffscope; print(ffscope.__file__)")
    assert Path(place.strip()).is_relative_to(installed)


def test_the_installed_wheel_finds_its_data_files(installed, tmp_path):
    code = """
from importlib.resources import files
import jinja2
from ffscope.web.responses import STATIC
assert (STATIC / "main.js").is_file() and (STATIC / "style.css").is_file()
assert files("ffscope.report").joinpath("stop_words.txt").read_text().split()
assert "page.html.j2" in jinja2.PackageLoader("ffscope.report").list_templates()
"""
    run(installed, tmp_path, sys.executable, "-c", code)
