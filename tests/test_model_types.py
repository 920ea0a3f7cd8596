"""Checkpoints whose config.json has no model_type, as older ones have."""

import json

import pytest
import torch
from typer.testing import CliRunner

import tiny
from ffscope import SourceError, load
from ffscope.cli import app
from ffscope.study.folder import Study


def remove_from_config(folder, *names):
    file = folder / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({name: value for name, value in config.items() if name not in names}))


@pytest.fixture
def saved(tmp_path, tokenizer):
    """Saves a tiny model, and removes entries from its config.json."""

    def save(name, *removed):
        folder = tmp_path / name
        tiny.make(name).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        remove_from_config(folder, *removed)
        return folder

    return save


def test_the_error_names_the_option_and_the_likely_type(saved):
    for removed, reason in (
        (("model_type",), "Its `architectures` names BertForMaskedLM."),
        (("model_type", "architectures"), "Its weights are named bert.…"),
    ):
        with pytest.raises(SourceError) as caught:
            load(saved("bert", *removed))
        assert "has no model_type" in str(caught.value)
        assert reason in str(caught.value)
        assert str(caught.value).endswith("Name the type: --model-type bert (in Python: model_type='bert').")


def test_the_likely_type_is_found_from_pickled_weights_too(saved):
    folder = saved("bert")
    state = load(folder).model.state_dict()
    remove_from_config(folder, "model_type", "architectures")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    with pytest.raises(SourceError, match="Its weights are named bert.… Name the type: --model-type bert"):
        load(folder)


def test_without_a_hint_it_says_what_to_name(saved):
    with pytest.raises(SourceError, match="Its documentation should say which type it is. Name the type: --model-type"):
        load(saved("llama", "model_type", "architectures"))


@pytest.mark.parametrize("removed", [("model_type",), ("model_type", "architectures")])
@pytest.mark.parametrize("name", ["bert", "llama", "gpt2", "opt"])
def test_the_named_type_loads_the_same_model(saved, name, removed):
    folder = saved(name)
    whole = load(folder)
    remove_from_config(folder, *removed)
    model = load(folder, model_type=name)
    assert model.model_type == name
    ids = [4, 5, 6]
    assert torch.equal(model.trace(ids).coefficients[0], whole.trace(ids).coefficients[0])
    assert model.tokenizer("Ab")["input_ids"] == whole.tokenizer("Ab")["input_ids"]


def test_a_type_that_the_config_gives_itself_may_be_repeated_but_not_contradicted(saved):
    folder = saved("llama")
    assert load(folder, model_type="llama").layers == 3
    with pytest.raises(
        SourceError, match="--model-type is 'bert', but config.json .* gives model_type 'llama'. .*leave it"
    ):
        load(folder, model_type="bert")


def test_wrong_types_are_plain_errors(saved, tmp_path):
    folder = saved("bert", "model_type")
    with pytest.raises(SourceError, match="'bart_', which transformers .* does not know. Did you mean 'bart'?"):
        load(folder, model_type="bart_")
    with pytest.raises(SourceError, match="names BertForMaskedLM, which is of type 'bert'. Use --model-type bert"):
        load(folder, model_type="llama")
    remove_from_config(folder, "architectures")
    with pytest.raises(
        SourceError, match="cannot be read as --model-type llama: .* named bert.… Use --model-type bert."
    ):
        load(folder, model_type="llama")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(SourceError, match="--model-type is for a config.json without model_type"):
        load(tmp_path / "model.gguf", model_type="llama")


def test_every_command_takes_it_and_a_study_records_it(saved, tmp_path):
    folder = saved("opt", "model_type")
    text = tmp_path / "text.txt"
    text.write_text("A fox ran. The dog sat. It was late. " * 40)
    named = [str(folder), "--model-type", "opt"]
    invoke("check", *named)
    invoke("trace", *named, "A fox")
    study = str(tmp_path / "study")
    invoke("triggers", *named, "--corpus", str(text), "--out", study)
    assert Study.open(study).manifest["model"]["model_type"] == "opt"
    invoke("values", study)  # reloads the model as the study says
    invoke("convert", *named, "--out", str(tmp_path / "converted"))
    assert json.loads((tmp_path / "converted" / "config.json").read_text())["model_type"] == "opt"
    invoke("values", study, "--model", str(tmp_path / "converted"))
    result = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"})
    assert "--model-type" in result.output


def test_a_study_of_an_ordinary_model_records_no_type(saved):
    from ffscope.models.fingerprint import manifest_entry

    assert "model_type" not in manifest_entry(load(saved("opt")))


def invoke(*words: str) -> None:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.exception
