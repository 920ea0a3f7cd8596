"""The explorer's pages as files: all of them or none, and nothing private in them."""

import json
import shutil

import pytest
from typer.testing import CliRunner

from explorer import app_of, client_of
from ffscope.cli import app
from ffscope.errors import MemoryNameError, StudyError
from ffscope.html import dump_json
from ffscope.memory_name import Memory
from ffscope.queries.memory import memory_page
from ffscope.queries.tables import Tables
from ffscope.web import export as exporting
from ffscope.web.export import export
from ffscope.web.pages.layer import layer_response
from ffscope.web.pages.memory import memory_response
from studies import copy_of, end_early


@pytest.fixture(scope="module")
def study(explored, tmp_path_factory):
    return copy_of(explored, tmp_path_factory.mktemp("export"))


def test_every_page_has_its_twin_beside_it(study, tmp_path):
    exported = export(study.folder, tmp_path / "site", names="L0.3,L2.21")
    site = tmp_path / "site"
    assert exported.first == site / "index.html"
    pages = {path.relative_to(site).as_posix() for path in site.rglob("*.html")}
    assert pages == {
        "index.html",
        "search.html",
        "L0/index.html",
        "L1/index.html",
        "L2/index.html",
        "L0/3.html",
        "L2/21.html",
    }
    assert exported.pages == len(pages)
    for page in pages:
        twin = json.loads((site / page).with_suffix(".json").read_text())
        assert twin
    tables = Tables(study)
    assert json.loads((site / "L1/index.json").read_text()) == json.loads(dump_json(layer_response(tables, 1)))
    twin, now = (
        json.loads((site / "L0/3.json").read_text()),
        json.loads(dump_json(memory_response(tables, Memory(0, 3)))),
    )
    twin.pop("random"), now.pop("random")
    assert twin == now


def test_the_search_index_holds_every_memory_with_what_it_can_be_found_by(study, tmp_path):
    export(study.folder, tmp_path / "site", names="L0.3")
    index = json.loads((tmp_path / "site" / "search.json").read_text())["index"]
    assert index["memories"] == [f"L{layer}.{memory}" for layer in range(3) for memory in range(22)]
    for number, name in enumerate(index["memories"]):
        page = memory_page(study.folder, name)
        assert [index["tokens"][token] for token in index["promotes"][number]] == [
            token for token, _ in page.value.promotes[:10]
        ]
        texts = [cut(index["sentences"][sentence], end) for sentence, end in index["triggers"][number]]
        assert texts == ["".join(trigger.tokens[: trigger.position + 1]) for trigger in page.triggers[:3]]
        own = [pattern.description for pattern in page.patterns if pattern.annotator == "machine"]
        assert index["patterns"][number] == (own[0] if own else None)


def cut(text, end):
    """The first characters of a text, counted as JavaScript counts."""
    return text.encode("utf-16-le")[: 2 * end].decode("utf-16-le")


def test_a_study_without_values_and_patterns_is_searched_by_its_triggers(study, tmp_path):
    bare = shutil.copytree(study.folder, tmp_path / "bare")
    manifest = json.loads((bare / "study.json").read_text())
    for stage in ("values", "agreement", "patterns"):
        del manifest["stages"][stage]
    (bare / "study.json").write_text(json.dumps(manifest))
    export(bare, tmp_path / "site", names="L0.3")
    twin = json.loads((tmp_path / "site" / "search.json").read_text())
    assert (twin["index"]["patterns"], twin["index"]["promotes"]) == ([], [])
    assert [entry["stage"] for entry in twin["missing"]] == ["values", "patterns"]
    assert any(twin["index"]["triggers"])


def test_without_names_there_are_some_of_every_layer(study, tmp_path):
    export(study.folder, tmp_path / "site", sample=1)
    for layer in range(3):
        assert len(list((tmp_path / "site" / f"L{layer}").glob("[0-9]*.html"))) >= 1
    assert (
        CliRunner()
        .invoke(app, ["export", str(study.folder), "--out", str(tmp_path / "two"), "--sample", "0"])
        .exit_code
        == 0
    )


def test_an_export_hides_local_paths(study, tmp_path):
    private = tmp_path / "private folder"
    shutil.copytree(study.folder, private)
    manifest = json.loads((private / "study.json").read_text())
    manifest["model"]["source"] = "/home/alice/secret/model"
    manifest["corpus"]["source"] = manifest["settings"]["corpus"] = "/home/alice/secret/mails.jsonl"
    manifest["settings"]["held_out"] = "../secret/held.jsonl"
    del manifest["stages"]["mutation"]
    (private / "study.json").write_text(json.dumps(manifest))
    export(private, tmp_path / "site", names="L0.3")
    text = "".join(file.read_text() for file in (tmp_path / "site").rglob("*") if file.suffix in (".html", ".json"))
    assert "secret" not in text
    assert "private folder" not in text
    assert str(tmp_path) not in text
    assert "mails.jsonl" in text
    assert "ffscope mutation DIR" in text


def test_what_was_searched_is_said_where_the_time_ended_the_search(study, tmp_path):
    folder = shutil.copytree(study.folder, tmp_path / "study")
    end_early(folder)
    export(folder, tmp_path / "site", names="L0.3")
    exported = json.loads((tmp_path / "site" / "index.json").read_text())
    with client_of(app_of(folder)) as client:
        served = client.get("/index.json").json()
    for twin in (exported, served):
        assert twin["corpus"]["searched"] == {"sentences": 50, "prefixes": 999}
    assert study.manifest["corpus"]["searched"]["sentences"] > 50


def test_existing_files_are_not_overwritten(study, tmp_path):
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "site", study.folder):
        with pytest.raises(StudyError, match="--out"):
            export(study.folder, out, names="L0.3")
    with pytest.raises(MemoryNameError, match="no memory L9.1"):
        export(study.folder, tmp_path / "site", names="L9.1")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "empty").mkdir()
    assert export(study.folder, tmp_path / "empty", names="L0.3").first.is_file()


def test_stopped_in_the_middle_nothing_is_left_and_the_same_command_works(study, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(exporting, "memory_response", stop)
        with pytest.raises(KeyboardInterrupt):
            export(study.folder, tmp_path / "site", names="L0.3")
    assert list(tmp_path.iterdir()) == []
    assert export(study.folder, tmp_path / "site", names="L0.3").pages == 6
