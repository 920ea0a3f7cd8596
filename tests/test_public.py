"""Others see the names of a study's sources, and no paths of this machine."""

import json
import shutil
import time
from pathlib import Path

import pytest

from explorer import app_of, client_of
from ffscope.errors import SourceError
from ffscope.report.command import reproduce
from ffscope.report.page import write_report
from ffscope.study.folder import Study
from ffscope.study.public import path_hider, public, public_name
from ffscope.web.app import make_app
from ffscope.web.export import export
from ffscope.web.guard import Rules
from ffscope.web.model_queue import ModelQueue
from studies import copy_of


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/home/alice/secret/model", "model"),
        ("/home/alice/secret/model/", "model"),
        ("./secret/model", "model"),
        ("../secret/held.jsonl", "held.jsonl"),
        ("~/secret/model.gguf", "model.gguf"),
        ("secret/model.gguf", "model.gguf"),
        ("secret/more/model", "model"),
        (r"C:\Users\alice\secret\model", "model"),
        ("C:/Users/alice/secret/model", "model"),
        (r"\\server\secret\model", "model"),
        (r"secret\model", "model"),
        ("/secret/</b><img src=x onerror=alert(1)>", "b><img src=x onerror=alert(1)>"),
        ("/data/secret/*.jsonl", "*.jsonl"),
        ("hf:/home/secret/data", "data"),
        ("hf:owner/name/config:train", "hf:owner/name/config:train"),
        ("owner/model", "owner/model"),
        ("smollm2-135m", "smollm2-135m"),
        ("/", "/"),
    ],
)
def test_the_name_of_a_source_is_its_last_part(source, name):
    assert public_name(source, hub=True) == name


def test_a_text_and_an_existing_folder_are_not_from_the_hub(tmp_path, monkeypatch):
    assert public_name("secret/mails.jsonl") == "mails.jsonl"
    assert public_name("secret/model", hub=True) == "secret/model"
    (tmp_path / "secret" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert public_name("secret/model", hub=True) == "model"


@pytest.fixture(scope="module")
def secret(explored, tmp_path_factory):
    """A study whose sources are all in a private folder, which its stages mention."""
    folder = tmp_path_factory.mktemp("undisclosed")
    copy = copy_of(explored, folder)
    manifest = json.loads((copy.folder / "study.json").read_text())
    manifest["model"]["source"] = str(folder / "model")
    manifest["corpus"]["source"] = manifest["settings"]["corpus"] = str(folder / "mails.jsonl")
    manifest["settings"]["held_out"] = "../undisclosed/held.jsonl"
    manifest["settings"]["corpus_files"] = [str(folder / "mails.jsonl")]
    manifest["stages"]["patterns"]["encoder_asked"] = str(folder / "encoder")
    labels = {"done": True, "seconds": 1.0, "tokens_per_second": None, "endpoint": "http://undisclosed.internal/v1"}
    manifest["stages"]["labels"] = {**labels, "model": str(folder / "llama")}
    manifest["stages"]["mutation"] = {"done": False, "why": f"{folder / 'model'}/config.json is not there."}
    (copy.folder / "study.json").write_text(json.dumps(manifest))
    with Study.adding(copy.folder) as study:
        write_report(study)
    return copy.folder


def hides_paths(text, folder):
    assert str(folder.parent) not in text
    assert "undisclosed" not in text


def test_the_report_shows_only_names(secret):
    text = (secret / "report.html").read_text()
    hides_paths(text, secret)
    assert "mails.jsonl" in text
    assert "held.jsonl" in text
    assert "model/config.json is not there." in text
    for file in (secret / "figures").iterdir():
        assert str(secret.parent).encode() not in file.read_bytes(), file.name
    hides_paths((secret / "summary.json").read_text(), secret)


def test_an_export_shows_only_names(secret, tmp_path):
    export(secret, tmp_path / "site", names="L0.3")
    for file in (tmp_path / "site").rglob("*"):
        if file.suffix in (".html", ".json"):
            hides_paths(file.read_text(), secret)


def test_the_command_that_reproduces_shows_only_names(secret):
    assert reproduce(public(Study.open(secret))).startswith("ffscope run model --corpus mails.jsonl --out study")


PAGES = ["/", "/L1", "/L2/5", "/search", "/prompt", "/annotate"]
TWINS = ["/index.json", "/L1.json", "/L2/5.json", "/search.json", "/annotate.json", "/live.json", "/openapi.json"]


@pytest.mark.parametrize("model", ["none", "ready", "failed"])
def test_the_server_shows_only_names(secret, tokenizer, model):
    def fail():
        raise SourceError(f"{secret.parent / 'model'} holds no model. See {Path.home()}/.cache/weights.")

    if model == "failed":
        app = make_app(secret, rules=Rules.of("127.0.0.1", page_token="x", token=None), queue=ModelQueue(fail))
    else:
        app = app_of(secret, tokenizer if model == "ready" else None)
    with client_of(app) as client:
        until = time.monotonic() + 60
        while client.get("/live.json").json()["state"] == "loading" and time.monotonic() < until:
            time.sleep(0.05)
        assert client.get("/live.json").json()["state"] == model
        refused = ["/L0/99.json", "/L9.json", "/prompt.json?text=a", "/annotate/L1/2.json?annotator=machine"]
        for path in [*PAGES, *TWINS, *refused]:
            hides_paths(client.get(path).text, secret)
        overview = client.get("/index.json").json()
        assert overview["corpus"]["source"] == "mails.jsonl"
        assert {entry["stage"]: entry["command"] for entry in overview["missing"]}[
            "mutation"
        ] == "ffscope mutation study"
        if model == "failed":
            assert "model holds no model. See ~/.cache/weights." in client.get("/prompt.json?text=a").text


def test_a_study_that_is_gone_is_not_named_by_its_path(secret, tmp_path):
    folder = tmp_path / "secret" / "study"
    shutil.copytree(secret, folder)
    with client_of(app_of(folder)) as client:
        assert client.get("/index.json").status_code == 200
        (folder / "study.json").unlink()
        answer = client.get("/index.json")
        assert answer.status_code == 409
        assert "study is not a study" in answer.text
        hides_paths(answer.text, secret)
        assert str(tmp_path) not in answer.text


def test_words_that_are_no_paths_stay_as_they_are(tmp_path):
    manifest = {"model": {"source": "model"}, "corpus": {"source": "a"}, "settings": {}, "stages": {}}
    hide = path_hider(Study(tmp_path / "study", manifest))
    assert hide("a model of a study") == "a model of a study"


def test_live_has_the_name_of_the_loaded_model(secret, tokenizer):
    with client_of(app_of(secret, tokenizer)) as client:
        until = time.monotonic() + 60
        while client.get("/live.json").json()["state"] == "loading" and time.monotonic() < until:
            time.sleep(0.05)
        assert client.get("/live.json").json()["model"] == "tiny/llama"
