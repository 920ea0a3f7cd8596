"""Edits that are written into weights, compared with plain transformers models whose weights are edited by hand."""

import copy
import json
import os
import platform
import shutil

import pytest
import torch
import transformers as hf

import ffscope
import tiny
from ffscope.editing import written
from ffscope.editing.record import RECORD, ROWS, Edited
from ffscope.editing.undo import undo
from ffscope.errors import InputError, LayoutError, MemoryNameError, ProofError, SourceError
from ffscope.models.inputs import random_inputs
from ffscope.models.loading import load, make_memory_model
from ffscope.models.saving import save_model

SCALE = {"L0.1": 2.0, "L1.7": -1.5, "L1.8": 1.3}


def logits_of(model):
    """Its logits, or last states, on random inputs."""
    with torch.no_grad():
        result = model(**random_inputs(model, batch=2, length=7))
    return result.logits if hasattr(result, "logits") else result.last_hidden_state


def saved(name, folder, dtype=torch.float32):
    """A tiny model in a folder, loaded from it."""
    plain = tiny.make(name).to(dtype)
    save_model(plain, None, folder)
    return load(str(folder), device="cpu")


def same_weights(a, b):
    a, b = ({**model.state_dict()} for model in (a, b))
    assert a.keys() == b.keys()
    for name in a:
        assert a[name].dtype == b[name].dtype, name
        assert torch.equal(a[name], b[name]), name


@pytest.mark.parametrize("name", tiny.sweep(tiny.TABLE))
def test_a_written_edit_equals_the_live_one_and_is_undone(name, tmp_path):
    model = saved(name, tmp_path / "source")
    before = copy.deepcopy(model.model.state_dict())
    last = model.layers - 1
    edits = {"zero": ["L0.3", f"L{last}"], "scale": {key: f for key, f in SCALE.items() if key[:2] != f"L{last}"}}
    edited = ffscope.edit(model, tmp_path / "edited", **edits)
    for key, tensor in model.model.state_dict().items():
        torch.testing.assert_close(tensor, before[key], rtol=0, atol=0)
    auto = type(model.model).from_pretrained(tmp_path / "edited").eval()
    with model.edit(**edits):
        expected = logits_of(model.model)
    torch.testing.assert_close(logits_of(auto), expected, rtol=1e-5, atol=1e-5)
    assert (logits_of(model.model) - expected).abs().max() > 1e-3
    assert edited.error < 1e-5
    changed = {weight.name for weight in edited.weights}
    for key, tensor in auto.state_dict().items():
        assert torch.equal(tensor, before[key]) == (key not in changed)
    assert Edited.read(tmp_path / "edited") == (edited,)
    undo(tmp_path / "edited", tmp_path / "undone")
    same_weights(
        type(model.model).from_pretrained(tmp_path / "undone"), type(model.model).from_pretrained(tmp_path / "source")
    )
    assert not (tmp_path / "undone" / RECORD).exists()


@pytest.mark.parametrize("name", tiny.KINDS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_stays_and_is_restored_bit_by_bit(name, dtype, tmp_path):
    model = saved(name, tmp_path / "source", getattr(torch, dtype))  # in float32, as on any CPU
    edited = ffscope.edit(model, tmp_path / "edited", zero="L0.3", scale={"L1.7": 1.3, "L1.8": -2})
    assert (edited.source_dtype, edited.dtype) == (dtype, dtype)
    assert 0 < edited.rounding < torch.finfo(getattr(torch, dtype)).eps
    cls = type(model.model)
    source = cls.from_pretrained(tmp_path / "source", dtype="auto")
    auto = cls.from_pretrained(tmp_path / "edited", dtype="auto")
    assert auto.dtype == getattr(torch, dtype)
    names = {weight.name for weight in edited.weights}
    for key, tensor in auto.state_dict().items():
        assert torch.equal(tensor, source.state_dict()[key]) == (key not in names)
    undo(tmp_path / "edited", tmp_path / "undone")
    same_weights(cls.from_pretrained(tmp_path / "undone", dtype="auto"), source)
    # In float32 nothing is rounded, and the source comes back in its own precision.
    exact = ffscope.edit(model, tmp_path / "exact", scale={"L1.7": 1.3}, full_precision=True)
    assert (exact.source_dtype, exact.dtype) == (dtype, "float32")
    assert exact.rounding < 1e-6
    with model.edit(scale={"L1.7": 1.3}):
        expected = logits_of(model.model)
    wide = cls.from_pretrained(tmp_path / "exact", dtype="auto")
    torch.testing.assert_close(logits_of(wide), expected, rtol=1e-5, atol=1e-5)
    undo(tmp_path / "exact", tmp_path / "restored")
    same_weights(cls.from_pretrained(tmp_path / "restored", dtype="auto"), source)


def test_rows_are_edited_as_by_hand(tmp_path):
    """Conv1D, an axis of a Linear, interleaved experts: the row of one memory in each layout."""
    model = saved("gpt2", tmp_path / "gpt2")
    ffscope.edit(model, tmp_path / "a", scale={"L1.7": 3.0})
    by_hand = copy.deepcopy(model.model)
    with torch.no_grad():
        by_hand.transformer.h[1].mlp.c_proj.weight[7] *= 3
    same_weights(type(by_hand).from_pretrained(tmp_path / "a"), by_hand)
    model = saved("llama", tmp_path / "llama")
    ffscope.edit(model, tmp_path / "b", zero="L2.21")
    by_hand = copy.deepcopy(model.model)
    with torch.no_grad():
        by_hand.model.layers[2].mlp.down_proj.weight[:, 21] = 0
    same_weights(type(by_hand).from_pretrained(tmp_path / "b"), by_hand)
    for name, path in (("mixtral", tmp_path / "mixtral"), ("gpt_oss", tmp_path / "gpt_oss")):
        model = saved(name, path)
        width = model.layer(1).parts[0].per_expert
        ffscope.edit(model, path / "edited", scale={f"L1.{2 * width + 5}": -0.5})
        by_hand = copy.deepcopy(model.model)
        weight = by_hand.model.layers[1].mlp.experts.down_proj
        with torch.no_grad():
            (weight[2, :, 5] if name == "mixtral" else weight[2, 5])[:] *= -0.5
        same_weights(type(by_hand).from_pretrained(path / "edited"), by_hand)


@pytest.mark.parametrize("name", ["opt", "gpt2", "opt post-norm", "granite", "bart", "falcon", "bert"])
def test_a_coefficient_is_fixed_in_the_bias(name, tmp_path):
    model = saved(name, tmp_path / "source")
    edits = {"set": {"L0.3": 1.5, "L0.4": -2, "L1.0": 0}, "scale": {"L0.5": 2}}
    edited = ffscope.edit(model, tmp_path / "edited", **edits)
    auto = type(model.model).from_pretrained(tmp_path / "edited").eval()
    with model.edit(**edits):
        expected = logits_of(model.model)
    torch.testing.assert_close(logits_of(auto), expected, rtol=1e-5, atol=1e-5)
    rows = {row.memory: (row.factor, row.addend) for row in edited.memories}
    assert rows == {"L0.3": (0, 1.5), "L0.4": (0, -2), "L1.0": (0, 0), "L0.5": (2, 0)}
    undo(tmp_path / "edited", tmp_path / "undone")
    same_weights(load(str(tmp_path / "undone"), device="cpu").model, model.model)


@pytest.mark.parametrize("name", ["qwen2", "t5", "mixtral"])
def test_a_fixed_coefficient_needs_a_bias(name, tmp_path):
    model = make_memory_model(tiny.make(name))
    with pytest.raises(LayoutError, match="--set needs an output projection with a bias.*Zero or scale these memories"):
        ffscope.edit(model, tmp_path / "edited", set={"L0.3": 1.5})
    assert not list(tmp_path.iterdir())
    ffscope.edit(model, tmp_path / "edited", set={"L0.3": 0})  # the same as zero


# --- several edits of one model ---


def test_an_edited_model_is_edited_again_and_both_are_undone(tmp_path):
    source = saved("llama", tmp_path / "source", torch.bfloat16)
    first = ffscope.edit(source, tmp_path / "first", zero="L0.3", scale={"L1.4": 1.7})
    model = load(str(tmp_path / "first"), device="cpu")
    second = ffscope.edit(model, tmp_path / "second", scale={"L0.3": 5, "L1.4": 0.3, "L2.0": 2}, full_precision=True)
    assert Edited.read(tmp_path / "second") == (first, second)
    assert second.source == str(tmp_path / "first")
    (tmp_path / "elsewhere").mkdir()
    shutil.copytree(tmp_path / "second", tmp_path / "elsewhere" / "second")  # the sources are not needed
    assert undo(tmp_path / "elsewhere" / "second", tmp_path / "back") == second
    assert Edited.read(tmp_path / "back") == (first,)
    files = ("model.safetensors", ROWS, RECORD)
    assert all((tmp_path / "back" / file).read_bytes() == (tmp_path / "first" / file).read_bytes() for file in files)
    assert undo(tmp_path / "back", tmp_path / "all") == first
    undone, original = (tmp_path / folder / "model.safetensors" for folder in ("all", "source"))
    assert undone.read_bytes() == original.read_bytes()
    assert not (tmp_path / "all" / RECORD).exists()
    assert not (tmp_path / "all" / ROWS).exists()


def test_the_record_of_a_pruned_model_is_kept(tmp_path):
    model = saved("llama", tmp_path / "source")
    (tmp_path / "source" / "ffscope-prune.json").write_text('{"removed": []}')
    ffscope.edit(model, tmp_path / "edited", zero="L0.3")
    undo(tmp_path / "edited", tmp_path / "undone")
    for folder in ("edited", "undone"):
        assert (tmp_path / folder / "ffscope-prune.json").read_text() == '{"removed": []}'


def test_weights_that_changed_since_are_not_undone(tmp_path):
    model = saved("llama", tmp_path / "source")
    ffscope.edit(model, tmp_path / "edited", zero="L0.3")
    trained = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "edited")
    with torch.no_grad():
        trained.model.layers[1].mlp.up_proj.weight[0, 0] += 1
    trained.save_pretrained(tmp_path / "edited")
    with pytest.raises(SourceError, match="are not those that the edit wrote"):
        undo(tmp_path / "edited", tmp_path / "undone")
    again = load(str(tmp_path / "edited"), device="cpu")
    with pytest.raises(SourceError, match="describes other weights than those that were loaded.*move the record away"):
        ffscope.edit(again, tmp_path / "twice", zero="L0.4")
    assert {path.name for path in tmp_path.iterdir()} == {"source", "edited"}


def test_damaged_originals_are_not_used(tmp_path):
    model = saved("llama", tmp_path / "source")
    ffscope.edit(model, tmp_path / "edited", zero="L0.3")
    rows = tmp_path / "edited" / ROWS
    content = rows.read_bytes()
    rows.write_bytes(content[:-4] + b"\x00\x00\x80\x3f")
    with pytest.raises(
        SourceError, match="do not give the weights that the record describes.*source that the record names"
    ):
        undo(tmp_path / "edited", tmp_path / "undone")
    rows.write_bytes(content[:20])
    with pytest.raises(SourceError, match=r"ffscope-edit.safetensors cannot be read .*cannot be undone"):
        undo(tmp_path / "edited", tmp_path / "undone")
    rows.unlink()
    with pytest.raises(SourceError, match=r"ffscope-edit.safetensors cannot be read"):
        undo(tmp_path / "edited", tmp_path / "undone")
    record = tmp_path / "edited" / RECORD
    for text in ("{", '{"edits": [{}]}', "[]", '{"edits": 3}', '{"edits": []}'):
        record.write_text(text)
        with pytest.raises(SourceError, match="has no ffscope-edit.json that can be read"):
            undo(tmp_path / "edited", tmp_path / "undone")
    assert not (tmp_path / "undone").exists()


# --- what is refused ---


def test_weights_of_several_layers_are_refused(tmp_path):
    plain = tiny.make("llama")
    plain.model.layers[1].mlp.down_proj.weight = plain.model.layers[0].mlp.down_proj.weight
    model = make_memory_model(plain)
    with pytest.raises(LayoutError, match=r"layers.0.mlp.down_proj.weight is also model.layers.1.mlp.down_proj.weight"):
        ffscope.edit(model, tmp_path / "edited", zero="L0.3")
    with pytest.raises(LayoutError, match="transformers does not save weights that several layers share"):
        ffscope.edit(model, tmp_path / "edited", zero="L2.3")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({}, InputError, "Expected memories to change, found none"),
        ({"zero": "L9.0"}, MemoryNameError, "There is no layer 9. This model has layers 0 to 2"),
        ({"zero": "L0.22"}, MemoryNameError, "There is no memory L0.22. Layer 0 has memories 0 to 21"),
        ({"scale": {"L0.3": float("nan")}}, InputError, "Expected a finite number for L0.3, found nan"),
        ({"scale": {"L0.3": "2"}}, InputError, "Expected a finite number for L0.3, found '2'"),
        ({"scale": ["L0.3"]}, InputError, "Expected `scale` as a dictionary"),
        ({"zero": "L0.3", "scale": {"L0.3": 2}}, InputError, "L0.3 is edited twice"),
        ({"zero": "L0", "scale": {"L0.3": 2}}, InputError, "L0.3 is edited twice"),
        ({"scale": {"L0.3": 1e39}}, InputError, r"factor of 1e\+39 makes a value of layer 0 too large for float32"),
    ],
)
def test_changes_that_are_refused(changes, error, message, tmp_path):
    with pytest.raises(error, match=message):
        ffscope.edit(make_memory_model(tiny.make("llama")), tmp_path / "edited", **changes)
    assert not list(tmp_path.iterdir())


def test_a_written_model_that_cannot_be_read_is_blamed_on_the_factors(tmp_path, monkeypatch):
    def fails(*_):
        raise LayoutError("The identity has a relative error of nan.")

    monkeypatch.setattr(written, "load_written", fails)
    with pytest.raises(ProofError, match=r"cannot be read as key–value memories: .* of nan\. .*Choose smaller factors"):
        ffscope.edit(make_memory_model(tiny.make("gpt2")), tmp_path / "edited", scale={"L1.3": 1e30})
    assert not list(tmp_path.iterdir())


def test_what_killed_processes_left_is_removed(tmp_path, monkeypatch):
    own, ours, theirs, gone = os.getpid(), f".edited.{platform.node()}", 10**8, 10**8 + 1
    monkeypatch.setattr("psutil.pid_exists", lambda number: number in (own, theirs))
    for name in (f"{ours}.{own}", f"{ours}.{theirs}", f"{ours}.{gone}", ".edited.x.7"):
        (tmp_path / name).mkdir()
    ffscope.edit(make_memory_model(tiny.make("gpt2")), tmp_path / "edited", zero="L1.3")
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {"edited", f"{ours}.{theirs}", ".edited.x.7"}  # these may still be written to


def test_a_model_that_is_not_proven_leaves_nothing(tmp_path, monkeypatch):
    from ffscope.models import written as models_written

    model = make_memory_model(tiny.make("llama"))
    (tmp_path / "there").mkdir()
    with pytest.raises(SourceError, match="already exists. Name a new folder"):
        ffscope.edit(model, tmp_path / "there", zero="L0.3")
    with monkeypatch.context() as patch:
        patch.setattr(models_written, "relative_error", lambda *_: 0.1)
        with pytest.raises(ProofError, match=r"differs from the model edited live: .* found 1.0e-01. Nothing was kept"):
            ffscope.edit(model, tmp_path / "edited", zero="L0.3")
    with monkeypatch.context() as patch:
        patch.setattr(written, "load_written", lambda *_: model)
        with pytest.raises(ProofError, match="to be read back as they are; found others"):
            ffscope.edit(model, tmp_path / "edited", zero="L0.3")

    def interrupt(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(written, "write_record", interrupt)
        with pytest.raises(KeyboardInterrupt):
            ffscope.edit(model, tmp_path / "edited", zero="L0.3")
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_an_edit_that_does_nothing_on_random_text_is_compared_where_it_fires(tmp_path, monkeypatch):
    """A dead memory: a wrong value of it shows only where it is made to fire."""
    plain = tiny.make("opt")
    with torch.no_grad():
        plain.model.decoder.layers[1].fc1.bias[4] = -1e4
    model = make_memory_model(plain)
    assert ffscope.edit(model, tmp_path / "right", scale={"L1.4": 3.0}).error < 1e-5
    scale_values = written.by_part(model, written.parse(model, (), {"L1.4": 3.0}, None))[0]._replace(
        factors=torch.tensor([2.0], dtype=torch.float64)
    )
    monkeypatch.setattr(written, "by_part", lambda *_: [scale_values])
    with pytest.raises(ProofError, match="differs from the model edited live"):
        ffscope.edit(model, tmp_path / "wrong", scale={"L1.4": 3.0})


def test_tied_embeddings_stay_tied(tmp_path):
    model = saved("gpt2", tmp_path / "source")
    ffscope.edit(model, tmp_path / "edited", zero="L0.3")
    auto = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "edited")
    assert auto.lm_head.weight is auto.transformer.wte.weight


def test_the_record_has_one_line_per_memory(tmp_path):
    model = make_memory_model(tiny.make("llama"))
    ffscope.edit(model, tmp_path / "edited", zero="L0")
    text = (tmp_path / "edited" / RECORD).read_text()
    assert text.count("\n") < 22 + 40
    assert json.loads(text)["edits"][0]["memories"][3] == {"memory": "L0.3", "factor": 0.0, "addend": 0.0}
