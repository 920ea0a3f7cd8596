"""Where models come from, and the errors for those that cannot be read."""

import json
import pickle

import pytest
import torch
import transformers as hf

import tiny
from ffscope import SourceError, load


@pytest.fixture
def folder(tmp_path, tokenizer):
    """A tiny saved model with its tokenizer."""
    tiny.make("llama").save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder, **changes):
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def test_a_folder_with_its_tokenizer(folder):
    model = load(folder)
    assert (model.layers, model.memories, model.hidden, model.vocab, model.gated) == (3, (22, 22, 22), 12, 67, True)
    assert model.trace("Ab").ids[0].tolist()[0] == 2
    assert str(model) == "MemoryModel(llama, 3 layers × 22 memories, gated, hidden 12)"


def test_a_folder_without_a_tokenizer(tmp_path):
    tiny.make("opt").save_pretrained(tmp_path)
    model = load(tmp_path)
    assert model.tokenizer is None
    assert model.trace([4, 5]).logits.shape == (1, 2, 67)


@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "mixtral", "vit", "gemma3"])
def test_the_class_that_was_saved_is_the_class_that_loads(tmp_path, name):
    saved = tiny.make(name)
    saved.save_pretrained(tmp_path)
    loaded = load(tmp_path).model
    assert type(loaded) is type(saved)
    assert all(torch.equal(a, b) for a, b in zip(saved.parameters(), loaded.parameters(), strict=True))


def test_an_encoder_without_a_head_loads(tmp_path):
    tiny.build(hf.BertModel, hf.BertConfig, tiny._BERT).save_pretrained(tmp_path)
    model = load(tmp_path)
    assert model.top is None
    assert model.trace([4, 5]).logits is None


def test_a_head_is_found_without_being_named(folder):
    edit_config(folder, architectures=None)
    assert load(folder).top is not None


def test_unused_weights_are_reported(folder, caplog):
    caplog.set_level("INFO", logger="ffscope")
    edit_config(folder, num_hidden_layers=2)
    assert load(folder).layers == 2
    assert "does not use 12 weights of the checkpoint" in caplog.text


def test_a_broken_tokenizer_does_not_hinder_the_check(folder):
    from ffscope.models.sources import read_model

    (folder / "tokenizer.json").write_text("{")
    assert read_model(str(folder), device="cpu", dtype="float32").config.model_type == "llama"


def test_precision(folder):
    assert load(folder).dtype == torch.float32
    assert load(folder, dtype="float64").dtype == load(folder, dtype=torch.float64).dtype == torch.float64
    with pytest.raises(SourceError, match="There is no dtype 'float8'. Choose one of: auto, float32"):
        load(folder, dtype="float8")
    with pytest.raises(SourceError, match="Device 'abacus' cannot be used on this machine. Choose cpu, or auto"):
        load(folder, device="abacus")


def test_pickled_weights_are_opened_only_if_they_hold_tensors_alone(folder):
    state = load(folder).model.state_dict()
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    load(folder)

    class Evil:
        def __reduce__(self):
            return (exec, (f"open({str(folder / 'pwned')!r}, 'w')",))

    with (folder / "pytorch_model.bin").open("wb") as file:
        pickle.dump({"model.embed_tokens.weight": Evil()}, file, protocol=2)
    with pytest.raises(SourceError):
        load(folder)
    assert not (folder / "pwned").exists()


def damage_truncated(folder):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:5000])


def damage_no_weights(folder):
    (folder / "model.safetensors").unlink()


def damage_lost_tensor(folder):
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    del state["model.layers.1.mlp.up_proj.weight"]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})


def damage_no_config(folder):
    (folder / "config.json").unlink()


def damage_bad_json(folder):
    (folder / "config.json").write_text("{bad")


def damage_sizes(folder):
    edit_config(folder, intermediate_size=99)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (damage_truncated, "cannot be read .*: the file is damaged or truncated. Download it again."),
        (
            damage_no_weights,
            "cannot be loaded: .*model.safetensors.* Expected a complete folder written by `save_pretrained`",
        ),
        (
            damage_lost_tensor,
            "are incomplete: 1 are missing, such as model.layers.1.mlp.up_proj.weight, .*would be random",
        ),
        (damage_no_config, "is not a model: expected a config.json in that folder, found .*model.safetensors"),
        (damage_bad_json, "cannot be loaded: .*not a valid JSON"),
        (damage_sizes, "cannot be loaded: "),
        (lambda f: (f / "config.json").write_text("[]"), "cannot be loaded: "),
        (lambda f: edit_config(f, hidden_size="12"), "cannot be loaded: "),
        (lambda f: edit_config(f, num_attention_heads=0), "cannot be loaded: "),
        (lambda f: (f / "tokenizer.json").write_text('{"version": "1.0"}'), "cannot be loaded: "),
        (
            lambda f: edit_config(f, model_type="gpt_neo_x"),
            "'gpt_neo_x', which transformers .* Did you mean 'gpt_neox'?",
        ),
        (
            lambda f: edit_config(f, model_type="own", auto_map={"AutoConfig": "own.Config"}),
            "contains its own code, which is not run without permission.*--trust-remote-code",
        ),
        (
            lambda f: edit_config(f, quantization_config={"quant_method": "gptq", "bits": 4}),
            "are quantized, so keys and",
        ),
    ],
)
def test_an_incomplete_folder(folder, damage, message):
    damage(folder)
    with pytest.raises(SourceError, match=message) as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_unknown_model_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source, message in {
        "./nowhere": "There is no file or folder ./nowhere. Check the path.",
        "missing.gguf": "There is no file or folder missing.gguf",
        "smollm2-135": "is not a local file or folder, nor a bundled default .* Did you mean 'smollm2-135m'?",
        "some-one/some-model": "the model hub did not provide it: .* Check the name and the network, or name a folder.",
    }.items():
        with pytest.raises(SourceError, match=message):
            load(source)


@pytest.mark.parametrize("content", [b"hello", b"", b"GGUF", b"GGUF\x03\0\0\0abc"])
def test_files_that_are_not_gguf(tmp_path, content):
    file = tmp_path / "model.gguf"
    file.write_bytes(content)
    with pytest.raises(
        SourceError, match="not a GGUF file: expected its first bytes to be 'GGUF'|damaged, truncated, or of"
    ):
        load(file)


def test_sources_that_are_not_names():
    with pytest.raises(SourceError, match=r"found a LlamaForCausalLM\. .* `ffscope\.read\(model, tokenizer\)`"):
        load(tiny.make("llama"))
    with pytest.raises(SourceError, match="found a NoneType"):
        load(None)


def test_an_adapter_is_not_a_model(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(SourceError, match="contains an adapter, not a model. Merge it into its base model first"):
        load(tmp_path)


@pytest.mark.bundled
@pytest.mark.slow
def test_the_bundled_default_is_transformers_own_reading_of_its_file(tmp_path, monkeypatch):
    """Converted once, loaded in seconds after that, with the logits that transformers gets from the GGUF file itself."""
    import time

    from ffscope.bundled import MODEL
    from ffscope.models import sources
    from ffscope.models.fingerprint import manifest_entry

    if MODEL.folder is None:
        pytest.skip(f"needs the package {MODEL.name}")
    monkeypatch.setenv("FFSCOPE_CACHE", str(tmp_path))
    first = load("smollm2-135m")
    start = time.perf_counter()
    model = load("smollm2-135m")
    seconds = time.perf_counter() - start
    assert seconds < 10, f"the second load took {seconds:.1f} s"
    assert manifest_entry(first) == manifest_entry(model)
    assert (model.layers, model.memories[0], model.hidden, model.vocab) == (30, 1536, 576, 49152)
    file = next(MODEL.folder.glob("*.gguf"))
    direct = sources._model(str(file.parent), torch.float32, {"gguf_file": file.name, "trust_remote_code": False})
    trace = model.trace("The capital of France is")
    with torch.no_grad():
        expected = direct(trace.ids).logits
    torch.testing.assert_close(trace.logits, expected, rtol=0, atol=1e-5)
    assert torch.equal(first.trace(trace.ids).logits, trace.logits)
    assert model.tokenizer.decode([int(trace.logits[0, -1].argmax())]) == " Paris"
    assert len(list((tmp_path / "models").iterdir())) == 1  # no partial files are left


@pytest.mark.shared
def test_a_real_model_is_read_exactly(wiki16):
    from ffscope import check

    model = load(wiki16)
    assert (model.layers, model.memories[0], model.hidden, model.vocab) == (16, 1024, 256, 16384)
    assert all(finding.holds for finding in check(model))
    trace = model.trace("The river flows into the")
    with torch.no_grad():
        torch.testing.assert_close(trace.logits, model.model(trace.ids).logits, rtol=0, atol=1e-5)
